"""The output of `make reference` is up to date: the pages agree with the code."""

import shutil
import subprocess
from dataclasses import replace

from scripts.reference import ROOT, quickstart_answer, reference

from fakes import synthetic
from fakes.needs import without
from powerband.model.plan import Setting


def test_made_pages_are_what_the_code_makes_of_them() -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in reference().items() if path.read_text() != text]
    assert not stale, "run `make reference`, and read the diff before a commit"


def test_the_id_of_a_setting_is_no_expression() -> None:
    named, analysis = Setting((("mode", "a+(b"),)), synthetic.analysis()
    answer = replace(analysis.answer, setting=named, sentences=("Use it.", f"With {named.id} the CPU is the limit."))
    assert "the CPU" not in quickstart_answer(replace(analysis, answer=answer))


def test_the_manual_is_read_without_a_warning() -> None:
    if shutil.which("groff") is None:
        without("no groff here: install Debian's package groff-base")
    command = ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-z", "docs/powerband.1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
