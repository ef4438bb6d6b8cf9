"""Makes the Grafana dashboards of `dashboards/`: `python -m scripts.grafana` (or `make dashboards`)."""

from __future__ import annotations

from scripts.grafana.bench import BENCH
from scripts.grafana.panels import Dashboard
from scripts.grafana.subjects import SUBJECTS

DASHBOARDS: tuple[Dashboard, ...] = (BENCH, *SUBJECTS)
