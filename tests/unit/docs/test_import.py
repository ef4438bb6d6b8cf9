"""docs/jmeter-import.md agrees with the code: its tables are the code's, and its example is converted."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from fakes import plans
from fakes.guides import block_of
from powerband.files.experiment_file import parse_experiment
from powerband.jmx.elements.known import KNOWN, REFUSED
from powerband.jmx.importing import import_plan
from powerband.jmx.plan_findings import ImportRefused

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "jmeter-import.md").read_text()


def rows(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_table_of_elements_is_the_codes() -> None:
    """Neighbouring elements that are converted to the same thing share a row."""
    table = []
    for how, group in groupby(KNOWN.items(), key=lambda item: item[1].how):
        kinds, known = zip(*group, strict=True)
        labels = ", ".join(each.label for each in known)
        table.append(f"| {labels} | {', '.join(f'`{kind}`' for kind in kinds)} | {how} |")
    assert rows("What is converted") == table


def test_every_kind_that_is_refused_with_advice_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.partition("## What is refused\n")[2].partition("\n## ")[0]))
    assert set(REFUSED) <= named
    assert not named & set(KNOWN)


def test_the_plan_of_the_page_converts(tmp_path: Path) -> None:
    imported = import_plan(ROOT / "examples" / "shop.jmx", command=("./shop", "--port", "{port}"))
    experiment = parse_experiment(imported.text, "shop.yaml")
    assert [step.name for step in experiment.load.scenario] == ["Log in", "Look at a product", "Order"] * 2
    for quoted in re.findall(r"```yaml\n(.*?)```", PAGE, re.S):
        assert quoted in imported.text


def test_the_refusal_of_the_page_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the number of the line."""
    monkeypatch.chdir(tmp_path)
    script = plans.element("JSR223PreProcessor", "JSR223 PreProcessor")
    Path("login.jmx").write_text(plans.plan(plans.group(plans.sampler(script, name="Login"))))
    with pytest.raises(ImportRefused) as refused:
        import_plan(Path("login.jmx"))
    said = re.sub(r"jmx:\d+", "jmx:41", f"powerband: {refused.value}")
    assert said.startswith(block_of("jmeter-import.md", "is not converted"))
