"""A test plan with the experiment file that it becomes, word for word, and a plan that is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.plans import element, group, plan, sampler
from powerband.jmx.importing import import_plan
from powerband.jmx.plan_findings import ImportRefused

HERE = Path(__file__).parent
SHOP = HERE.parents[1] / "examples" / "shop.jmx"


def check(name: str, text: str) -> None:
    path = HERE / name
    if os.environ.get("POWERBAND_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_shop() -> None:
    check("import-shop.yaml", import_plan(SHOP).text)


def test_a_plan_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = element("JSR223PreProcessor", "JSR223 PreProcessor")
    Path("login.jmx").write_text(
        plan(element("CookieManager", "HTTP Cookie Manager"), group(sampler(script, name="Login", path="/${token}")))
    )
    with pytest.raises(ImportRefused) as refused:
        import_plan(Path("login.jmx"))
    check("import-refused.txt", f"{refused.value}\n")
