"""A chart on the HTML page as text: its empty box, a sentence for screen readers, its numbers as a table.

Every value from outside passes through `escape`; templates/*.js fill the boxes."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from html import escape

from powerband.report.html.charts import Chart, Picture
from powerband.report.wording.numbers import ABSENT


def figure(chart: Chart) -> str:
    """A chart of settings with its frame and its numbers as a table."""
    down = len(chart.axis.positions)
    rows_rem = {"stack": 5 + down * 1.75, "estimates": max(11.5, 4 + down * 1.75) if chart.flat else 0.0}
    unit = "" if chart.kind == "stack" else {"/s": "per second"}.get(chart.unit, chart.unit)
    return boxed(chart, _spoken(chart), _chart_table(chart), unit=unit, height_rem=rows_rem[chart.kind])


def boxed(
    chart: Picture, spoken: str, numbers: str, *, unit: str = "", height_rem: float = 0.0, controls: str = ""
) -> str:
    """The frame of any chart. `numbers` (a table) and `controls` (choosers) are markup, the others plain text; a
    height of 0 leaves the height to the style sheet. A script adds the buttons to save it."""
    said = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    title = escape(chart.title) + (f" <small>{escape(unit)}</small>" if unit else "")
    style = f' style="height:{height_rem:.2f}rem"' if height_rem else ""
    return (
        f'<figure><figcaption><h3 id="title-{chart.id}">{title}</h3>{said}</figcaption>{controls}'
        f'<div class="chart" id="chart-{chart.id}" role="img" aria-label="{escape(spoken)}"{style}></div>'
        f"{foot(numbers)}</figure>"
    )


def foot(numbers: str, words: str = "As a table") -> str:
    """The foot of a chart: its numbers, folded away. `numbers` is markup."""
    return (
        f'<div class="foot no-print"><details><summary>{escape(words)}</summary>'
        f'<div class="scroll" tabindex="0">{numbers}</div></details></div>'
    )


def chooser(name: str, label: str, options: Sequence[str], chosen: int, *, kind: str = "") -> str:
    """A drop-down list; `chosen` is the index of the selected option."""
    shown = "".join(
        f'<option value="{index}"{" selected" if index == chosen else ""}>{escape(text)}</option>'
        for index, text in enumerate(options)
    )
    marked = f' class="{kind}"' if kind else ""
    return f'<label{marked}>{escape(label)} <select id="{name}">{shown}</select></label>'


def wrapping(text: str) -> str:
    """The text as markup that allows line breaks inside the long id of a setting."""
    return re.sub(r",(?=[A-Za-z_])", ",<wbr>", escape(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Container[int] = ()) -> str:
    """A plain table: first column names, the others values; the columns in `words` hold texts, which wrap."""

    def kind(place: int) -> str:
        return ' class="words"' if place in words else ""

    head = "".join(f'<th scope="col"{kind(place)}>{escape(name)}</th>' for place, name in enumerate(heads))
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td{kind(place)}>{escape(cell)}</td>" for place, cell in enumerate(rest, 1))
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def scrolling(label: str, content: str) -> str:
    """A wide table in a frame of its own, which also scrolls by keyboard. `content` is markup."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def _spoken(chart: Chart) -> str:
    parts = []
    for line in chart.lines:
        points = [f"{point.setting} {point.text}" for point in line.points]
        parts.append(f"{line.name + ': ' if line.name else ''}{'; '.join(points[:12])}")
    return f"Chart: {chart.title}. {'. '.join(parts)}. The values are in the table below."


def _chart_table(chart: Chart) -> str:
    heads = [line.name or chart.title for line in chart.lines]
    by_setting: dict[str, dict[int, str]] = {}
    for index, line in enumerate(chart.lines):
        for point in line.points:
            by_setting.setdefault(point.setting, {})[index] = point.text
    used = [index for index in range(len(heads)) if any(index in row for row in by_setting.values())]
    if len(used) > 1 and all(len(row) == 1 for row in by_setting.values()):
        rows = [(setting, next(iter(row.values()))) for setting, row in by_setting.items()]
        return table(["setting", chart.title], rows)
    return table(
        ["setting", *(heads[index] for index in used)],
        [(setting, *(row.get(index, ABSENT) for index in used)) for setting, row in by_setting.items()],
    )
