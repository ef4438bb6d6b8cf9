"""Bars as pictures: a rectangle each, from 0 to the highest of its own setting."""

from __future__ import annotations

import re
from dataclasses import replace

from fakes import synthetic
from powerband.report.html.bar_section import bars_section
from powerband.report.html.page import BarsView

VIEWS = (BarsView("threads=1", 3, 30.0, (100.0, 50.0, 75.0)), BarsView("<b>", 4, 30.0, (0.0, 0.0)))


def test_each_setting_has_its_picture_and_its_numbers() -> None:
    page = bars_section(VIEWS, replace(synthetic.analysis(), noun="message"))
    assert "mean rate of 30 s (messages per second)" in page
    first, second = page.split("<figure>")[1:]
    heights = [float(height) for height in re.findall(r'<rect [^>]*height="([\d.]+)"', first)]
    assert [height / heights[0] for height in heights] == [1.0, 0.5, 0.75]
    assert "lowest bar 50.0/s, highest 100/s: 50 %" in first
    assert ">30 s<" in first and ">75.0/s<" in first
    assert "&lt;b&gt;" in second and "<b>" not in second
    assert set(re.findall(r'height="([\d.]+)"></rect>', second)) == {"0.000"}


def test_no_bars_no_section() -> None:
    assert bars_section((), synthetic.analysis()) == ""
