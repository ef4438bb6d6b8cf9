"""Powerband from Python: runs and reads experiments, and hands out typed results, data frames and figures.

What `import powerband` offers, by way of `powerband/__init__.py`; docs/python.md tells how it is used. Thin: measuring
is `search.session`, tables are `report.tables`."""

from powerband.api.measuring import compare, read, resume, run, tune
from powerband.api.run_results import Comparison, Run

__all__ = ["Comparison", "Run", "compare", "read", "resume", "run", "tune"]
