"""Powerband from Python: runs and reads experiments, and returns typed results, data frames and figures.

`import powerband` offers these names, by way of `powerband/__init__.py`; docs/python.md shows their use. This layer is
thin: `search.session` measures, `report.tables` makes the tables."""

from powerband.api.measuring import compare, read, resume, run, tune
from powerband.api.run_results import Comparison, Run

__all__ = ["Comparison", "Run", "compare", "read", "resume", "run", "tune"]
