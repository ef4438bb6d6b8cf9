"""Writes every dashboard anew: `python -m scripts.grafana`."""

from __future__ import annotations

from pathlib import Path

from scripts.grafana import DASHBOARDS
from scripts.grafana.panels import to_json

FOLDER = Path(__file__).parents[2] / "dashboards"


def main() -> None:
    for made in DASHBOARDS:
        (FOLDER / f"{made.name}.json").write_text(to_json(made))


if __name__ == "__main__":
    main()
