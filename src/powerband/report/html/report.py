"""The HTML report: one file that opens from disk without a network. In: a `ReportPage`. Out: text; nothing is computed.

The chart library (static/echarts.min.js.gz, built by `make bundle`) and the series are gzipped and base64-encoded; the
browser unpacks them. A content security policy allows only the scripts of this file, by hash, and no connections."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from powerband.base.version import __version__
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Analysis
from powerband.report.html.charts import main_charts, resource_charts, state_chart
from powerband.report.html.gather import gather
from powerband.report.html.limit_lanes import limit_chart, span_words
from powerband.report.html.page import Quantiles, ReportPage, TrialView
from powerband.report.html.rule_chart import rule_chart
from powerband.report.html.sections import Charts, Drawn, body
from powerband.report.html.surface import surface_chart
from powerband.report.html.trade_off_chart import trade_off_chart
from powerband.report.html.verdict_charts import capacity_charts, exploration_chart, pool_chart, race_chart
from powerband.report.wording.names import short_names
from powerband.report.wording.standings import ranked
from powerband.store import RunDir, write_atomically, writing

SCRIPTS = (
    "charts.js",
    "verdicts.js",
    "limits.js",
    "surface.js",
    "distribution.js",
    "csv.js",
    "save.js",
    "arrows.js",
    "trials.js",
    "report.js",
)
LINES_SHOWN = 8  # lines of the distributions that are visible at first: more cannot be told apart


def write_report(run: RunDir, analysis: Analysis) -> Path:
    """Makes report.html in the run directory and returns its path. Raises MeasurementError if the file cannot be
    written."""
    text = render_page(gather(run, analysis))
    with writing(run.report, "report"):
        write_atomically(run.report, text)
    return run.report


def render_page(page: ReportPage) -> str:
    """The whole HTML file."""
    charts = _charts(page.analysis)
    script = "\n".join(_template(name) for name in SCRIPTS).replace("\nexport ", "\n")  # one script, no modules
    packed_library = files("powerband.report").joinpath("static/echarts.min.js.gz").read_bytes()
    library = gzip.decompress(packed_library)
    data = _data(page, charts.all())
    return Template(_template("report.html")).substitute(
        title=escape(f"{page.analysis.name} – powerband"),
        version=escape(__version__),
        script_hashes=" ".join(_hash(code) for code in (script.encode(), library)),
        style=_template("theme.css") + _template("report.css"),
        body=body(page, charts),
        packed_charts=base64.b64encode(packed_library).decode(),
        packed_data=base64.b64encode(gzip.compress(data.encode(), compresslevel=6, mtime=0)).decode(),
        script=script,
    )


def _charts(analysis: Analysis) -> Charts:
    return Charts(
        main=tuple(main_charts(analysis)),
        surface=surface_chart(analysis),
        trade_offs=trade_off_chart(analysis),
        race=race_chart(analysis),
        exploration=exploration_chart(analysis),
        capacity=tuple(capacity_charts(analysis)),
        pools=pool_chart(analysis),
        limits=limit_chart(analysis),
        rules=rule_chart(analysis),
        costs=tuple(resource_charts(analysis)),
        states=state_chart(analysis),
    )


def _data(page: ReportPage, charts: Sequence[Drawn]) -> str:
    short = short_names(page.analysis)
    answer = page.analysis.answer.setting
    first = _lines_shown(page.analysis)
    document: dict[str, Any] = {
        "name": page.analysis.name,
        "limit_tones": {name: name.colour for name in BottleneckName if name.colour is not None},
        "charts": [asdict(chart) for chart in charts],
        "distributions": [
            {
                "setting": each.setting,
                "label": short.names.get(each.setting, each.setting),
                "answer": answer is not None and each.setting == answer.id,
                "shown": each.setting in first,
                "response_time": {"points": _points(each.response_time)},
                "service_time": {"points": _points(each.service_time)},
            }
            for each in page.distributions
        ],
        "trials": [_trial(trial) for trial in page.trials],
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _trial(trial: TrialView) -> dict[str, Any]:
    return {
        "number": trial.number,
        "measured_s": trial.measured_s,
        "limits": [[_short(span.from_s), _short(span.to_s), *span_words(span)] for span in trial.limits],
        "tracks": [
            {
                "panel": track.panel,
                "label": track.label,
                "unit": track.unit,
                **({"band": True} if track.band else {}),
                "points": [[_short(s), None if value is None else _short(value)] for s, value in track.points],
            }
            for track in trial.tracks
        ],
    }


def _lines_shown(analysis: Analysis) -> frozenset[str]:
    """The answer, and the best of the others."""
    chosen = [analysis.answer.setting] if analysis.answer.setting is not None else []
    settings = dict.fromkeys([*chosen, *(row.setting for row in ranked(analysis))])
    return frozenset(setting.id for setting in list(settings)[:LINES_SHOWN])


def _points(quantiles: Quantiles) -> list[list[float]]:
    """Quantiles below 1, since the axis of nines has no position for the maximum."""
    return [[q, _short(ns)] for q, ns in quantiles.points if q < 1 and ns > 0]


def _short(value: float) -> float:
    """Five significant digits: more than a plot shows, and less than half the bytes."""
    return float(f"{value:.5g}")


def _hash(code: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'"


def _template(name: str) -> str:
    return files("powerband.report").joinpath("templates", name).read_text(encoding="utf-8")
