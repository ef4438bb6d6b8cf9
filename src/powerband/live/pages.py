"""The pages as HTML. In: values. Out: text. Every value from a run directory passes through `escape`; scripts are
separate files, so that nothing in a page can become one. static/run.js fills in everything that changes during a run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from powerband.analyze.runs.changes import RunComparison
from powerband.base.units import plural
from powerband.base.version import __version__
from powerband.live.growing_files import plain_text
from powerband.live.history import HistoryLine
from powerband.live.payload import as_json, axis_scale
from powerband.live.state import RunState, RunStatus
from powerband.model.metrics import METRICS
from powerband.report.wording.comparison import change_cells, change_reasons, comparison_note
from powerband.report.wording.findings import estimate_phrase
from powerband.report.wording.standings import metric_name

_STYLES = ("theme.css", "live.css")
_STATUS = {
    RunStatus.RUNNING: "running",
    RunStatus.FINISHED: "finished",
    RunStatus.INTERRUPTED: "interrupted",
    RunStatus.STALE: "stopped unexpectedly",
    RunStatus.UNREADABLE: "cannot be read",
    RunStatus.UNKNOWN: "cannot be seen now",
}


def run_address(folder: str) -> str:
    """The path of a run's page. `folder`: the name of its directory."""
    return f"/runs/{quote(folder, safe='')}/"


def history_page(lines: Sequence[HistoryLine], root: str) -> str:
    """All runs of the folder, the latest first, with a form to compare two of them."""
    rows = "".join(_history_row(line, index) for index, line in enumerate(lines))
    table = f"""<form action="/compare" method="get">
<div class="scroll"><table class="runs">
<caption class="hidden">Runs, the latest first</caption>
<thead><tr><th scope="col">run</th><th scope="col" class="words">answer</th><th scope="col">trials</th>
<th scope="col">began</th>
<th scope="col">state</th><th scope="col"><abbr title="the first of two to compare">A</abbr></th>
<th scope="col"><abbr title="the second of two to compare">B</abbr></th></tr></thead>
<tbody id="runs">{rows}</tbody></table></div>
<p class="tools"><button type="submit"{"" if len(lines) > 1 else " disabled"}>Compare A with B</button></p></form>"""
    none = (
        f"<p class='lead'>There is no run in {escape(root)} yet. <code>powerband run quickstart</code> makes one.</p>"
    )
    body = f"""<header class="top"><p class="eyebrow">powerband</p><h1>Runs</h1>
<p class="lead" id="count">{plural(len(lines), "run")} in {escape(root)}, the latest first.</p></header>
<main id="content">{table if lines else none}</main>"""
    return _page("Runs", body, scripts=("history.js",))


def _history_row(line: HistoryLine, index: int) -> str:
    address = escape(run_address(line.folder))
    folder, name = escape(line.folder), escape(line.name)
    report = f' · <a href="{address}report">report</a>' if line.has_report else ""
    question = f"<small>{escape(line.question)}</small>" if line.question else ""
    answer = f"{escape(line.answer)}<small>{escape(line.sure)}</small>" if line.answer else "no answer yet"
    picks = "".join(
        f'<td data-head="{key.upper()}"><input type="radio" name="{key}" value="{folder}"'
        f' aria-label="{which} to compare: {folder}"{" checked" if index == place else ""}></td>'
        for key, which, place in (("a", "first", 1), ("b", "second", 0))
    )
    return (
        f'<tr data-run="{folder}"><th scope="row"><a href="{address}">{name}</a>{report}{question}</th>'
        f'<td class="words">{answer}</td><td data-head="trials">{line.trials:,}</td><td>{_day(line.began_s)}</td>'
        f"<td>{_pill(line.status)}</td>{picks}</tr>"
    )


def run_page(folder: str, name: str) -> str:
    """The frame of a run's page; its first message fills it."""
    there = run_address(folder)
    body = f"""<div id="lost" class="banner" role="status" hidden>Connection lost: the live server has stopped.
<code>powerband watch</code> with the run's folder reopens it; the report is the file <code>report.html</code> in that
folder.</div>
<div id="refused" class="banner" role="status" hidden></div>
<header class="top">
<p class="eyebrow"><a href="/">Runs</a> / <b>{escape(folder)}</b> <span id="status" class="pill">…</span>
<a id="report" href="{escape(there)}report" hidden>report</a></p>
<h1 id="question"></h1>
<p id="answer" class="answer">{escape(name)}</p>
<p id="because" class="because"></p>
<dl class="keys">
<div><dt>trials</dt><dd><span id="done">–</span><small id="counts"></small>
<progress id="progress" max="1" value="0" aria-label="trials done"></progress></dd></div>
<div><dt>time left</dt><dd><span id="eta">–</span><small id="began"></small></dd></div>
<div><dt>now</dt><dd><span id="now">–</span><small id="phase"></small></dd></div>
<div><dt>objective</dt><dd><span id="objective">–</span><small id="race"></small></dd></div>
</dl>
<ul id="warnings" class="notes" hidden></ul>
</header>
<main id="content">
<section id="nodes-part" aria-labelledby="nodes-title" hidden><h2 id="nodes-title">Nodes</h2>
<p id="nodes-about" class="lead"></p>
<div class="scroll"><table id="nodes"><thead><tr><th scope="col">node</th><th scope="col">setting</th>
<th scope="col">trial</th><th scope="col" class="words">now</th></tr></thead><tbody></tbody></table></div></section>
<section id="series-part" aria-labelledby="series-title"><h2 id="series-title">Now</h2>
<p class="lead"><span id="series-about">Nothing runs at the moment.</span>
<button type="button" id="follow" hidden>Back to the running trial</button></p>
<div id="plots" class="grid three"></div></section>
<section aria-labelledby="ranking-title"><h2 id="ranking-title">Ranking</h2>
<p class="lead" id="ranking-about"></p>
<figure id="ranking-figure" hidden><div id="ranking-chart" class="chart" role="img"></div></figure>
<div class="scroll"><table id="ranking"><thead></thead><tbody></tbody></table></div></section>
<section aria-labelledby="plan-title"><h2 id="plan-title">Plan</h2>
<p class="lead" id="plan-about">Choose a trial to see its seconds above: arrow keys move, Enter shows it.</p>
<div class="scroll"><table id="plan" class="plan"><thead></thead><tbody></tbody></table></div>
<p id="trial-about" class="lead" role="status"></p></section>
</main>"""
    return _page(
        f"{name} – powerband",
        body,
        scripts=("uplot.min.js", "echarts.min.js", "run.js"),
        styles=("uplot.min.css", *_STYLES),
        about=f'data-run="{escape(there)}"',
    )


def message_page(title: str, text: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """A page that explains why something cannot be shown."""
    more = " ".join(f'<a href="{escape(address)}">{escape(said)}</a>' for address, said in links)
    body = f"""<header class="top"><p class="eyebrow"><a href="/">Runs</a></p><h1>{escape(title)}</h1></header>
<main id="content"><p class="because">{escape(text)}</p><p>{more}</p></main>"""
    return _page(title, body)


def compare_page(folders: tuple[str, str], states: tuple[RunState, RunState], found: RunComparison) -> str:
    """Two runs side by side: the answer of each, and the changes by setting. The texts of `found` name them A and B."""
    metric = found.objective
    heads = ("setting", "A", "B", "change", "interval", "smallest", "verdict")
    rows = "".join(
        f'<tr><th scope="row">{escape(cells[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:6])
        + f'<td class="{_TONES.get(cells[6], "")}">{escape(cells[6])}</td></tr>'
        for cells in (change_cells(change, found) for change in found.changes)
    )
    absent = [
        f"Measured in {which} only: {'; '.join(setting.id for setting in settings)}"
        for which, settings in (("A", found.only_first), ("B", found.only_second))
        if settings
    ]
    notes = [*change_reasons(found), *absent, *found.warnings]
    sides = "".join(_side(*side) for side in zip("AB", folders, states, strict=True))
    swapped = "/compare?" + urlencode({"a": folders[1], "b": folders[0]})
    picture = (
        f"<figure><figcaption><h2>{escape(metric_name(metric))} with its interval</h2></figcaption>"
        '<div id="compare-chart" class="chart" role="img" '
        f'aria-label="{escape(metric_name(metric))} of each setting in both runs, as in the table"></div></figure>'
        if found.changes
        else ""
    )
    body = f"""<header class="top"><p class="eyebrow"><a href="/">Runs</a> / <b>two compared</b></p>
<p class="answer long">{escape(found.sentence)}</p></header>
<main id="content"><div class="grid two">{sides}</div>
<p class="lead"><a href="{escape(swapped)}">Swap A and B</a></p>
{picture}
<div class="scroll"><table><thead><tr>{"".join(f'<th scope="col">{head}</th>' for head in heads)}</tr></thead>
<tbody>{rows}</tbody></table></div>
<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>
<p class="lead">{escape(comparison_note(found))}</p></main>
{_data("compare-data", _picture(found))}"""
    return _page("Two runs compared", body, scripts=("echarts.min.js", "compare.js"))


_TONES = {"better": "good", "worse": "bad", "inconclusive": "unsure"}


def _side(letter: str, folder: str, state: RunState) -> str:
    address = run_address(folder)
    report = f' · <a href="{escape(address)}report">report</a>' if state.has_report else ""
    says = "".join(f"<p>{escape(sentence)}</p>" for sentence in state.answer[:2]) or "<p>It has no answer yet.</p>"
    return (
        f'<section class="side"><p class="eyebrow"><i class="swatch {letter.lower()}"></i>{letter} · '
        f"{_day(state.started_s)} · "
        f"{plural(state.valid, 'valid trial')}</p>"
        f'<h2><a href="{escape(address)}">{escape(folder)}</a></h2>{says}'
        f'<p class="eyebrow">{_pill(state.status)}{report}</p></section>'
    )


def _picture(found: RunComparison) -> dict[str, Any]:
    """Estimates of both runs: numbers for a plot, and text for its tooltips."""
    estimates = [each for change in found.changes for each in (change.first, change.second) if each is not None]
    return {
        "metric": metric_name(found.objective),
        "scale": axis_scale((estimate.value for estimate in estimates), METRICS[found.objective].unit),
        "settings": [change.setting.id for change in found.changes],
        "runs": [
            [
                None
                if estimate is None
                else {
                    "value": estimate.value,
                    "at_least": estimate.at_least,
                    "low": None if estimate.at_least else estimate.low,
                    "high": None if estimate.at_least else estimate.high,
                    "text": estimate_phrase(estimate, found.objective),
                }
                for estimate in (getattr(change, which) for change in found.changes)
            ]
            for which in ("first", "second")
        ],
    }


def _data(name: str, value: Any) -> str:
    """A block of JSON data that cannot end its element or start a script, since it contains no `<`."""
    text = as_json(value).replace("<", "\\u003c").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _pill(status: RunStatus) -> str:
    return f'<span class="pill" data-status="{status.value}">{_STATUS[status]}</span>'


def _day(moment_s: float | None) -> str:
    if moment_s is None:
        return "–"
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment_s))
    return f'<time datetime="{iso}">{time.strftime("%-d %b %Y, %H:%M", time.localtime(moment_s))}</time>'


def _page(
    title: str,
    body: str,
    *,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = _STYLES,
    about: str = "",
) -> str:
    links = "".join(f'<link rel="stylesheet" href="/static/{name}">' for name in styles)
    # Libraries are classic scripts, ours are modules; both run in order once the page is loaded.
    code = "".join(
        f'<script {"defer" if name.endswith(".min.js") else "type=module"} src="/static/{name}"></script>'
        for name in scripts
    )
    return plain_text(f"""<!doctype html>
<html lang="en" {about}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="powerband {escape(__version__)}">
<title>{escape(title)}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
{links}{code}
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
{body}
</body>
</html>
""")
