"""The output of `make reference` is up to date: the pages agree with the code."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from scripts import reference as made
from scripts.reference import ROOT, reference

from fakes import synthetic
from fakes.needs import without
from powerband.model.plan import Setting


def test_made_pages_are_what_the_code_makes_of_them() -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in reference().items() if path.read_text() != text]
    assert not stale, "run `make reference`, and read the diff before a commit"


def test_the_id_of_a_setting_is_no_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    named, analysis = Setting((("mode", "a+(b"),)), synthetic.analysis()
    answer = replace(analysis.answer, setting=named, sentences=("Use it.", f"With {named.id} the CPU is the limit."))
    monkeypatch.setattr(made, "analysis_of", lambda kept: replace(analysis, answer=answer))
    assert "the CPU" not in made.quickstart_answer()


def test_the_manual_is_read_without_a_warning() -> None:
    if shutil.which("groff") is None:
        without("no groff here: install Debian's package groff-base")
    command = ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", "docs/powerband.1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
