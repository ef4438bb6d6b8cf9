"""Whole runs that are kept for the pictures of their reports."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.gallery import SHOTS
from scripts.keep import DROPPED, NotKeptError
from scripts.whole import BYTES_MAX, RUNS, analysed, pack, unpacked

from fakes.finished_run import MADE, new_run, run_to_its_end
from powerband.report.html.gather import gather
from powerband.report.html.page import ReportPage
from powerband.search.session import analyse_run
from powerband.store import RunDir

HOST = {"wall_s": 1795568400.5, "hostname": "ours", "command": ["/somewhere/powerband", "run", "fake"]}
ARCHIVES = sorted(RUNS.glob("*.tar.xz"))
PLACE = re.compile(r"(?<![\w.}-])/(?:home|root|tmp|work|opt|srv|mnt|Users)/")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = new_run(tmp_path_factory.mktemp("runs"))
    made.host.write_text(json.dumps(HOST))
    made.nodes.write_text(json.dumps({"nodes": {"one": {**HOST, "cpu": {"model": "Made-up"}}}, "overhead": {}}))
    run_to_its_end(made)
    return made


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        return {name: file.read().decode() for name in tar.getnames() if (file := tar.extractfile(name))}


def shown(run: RunDir) -> ReportPage:
    """The report's page without what tells of the run's place."""
    return replace(gather(run, analysed(run)), run="", command="")


def test_an_archive_gives_the_report_of_the_run(run: RunDir, tmp_path: Path) -> None:
    archive = pack(run, "fake", tmp_path)
    again = unpacked(archive, tmp_path / "again")
    assert analysed(again).to_json() == analyse_run(MADE, run).to_json()
    told = replace(gather(run, analyse_run(MADE, run)), run="", command="")
    assert replace(shown(again), facts=()) == replace(told, facts=()) and told.trials
    first = archive.read_bytes()
    assert pack(run, "fake", tmp_path).read_bytes() == first, "the same run, the same bytes"


def test_an_archive_with_the_raw_files_of_one_trial_gives_the_same_answer(run: RunDir, tmp_path: Path) -> None:
    archive = pack(run, "fake", tmp_path, raw=[2])
    assert {path.split("/")[1] for path in contents(archive) if path.endswith("/probe.jsonl")} == {"0002"}
    again, whole = shown(unpacked(archive, tmp_path / "again")), shown(run)
    assert again.analysis.answer == whole.analysis.answer and again.analysis.settings == whole.analysis.settings
    assert again.analysis.race == whole.analysis.race
    assert again.distributions == whole.distributions and again.trials[1] == whole.trials[1]


def test_an_archive_tells_nothing_of_the_machine_s_name_and_places(run: RunDir, tmp_path: Path) -> None:
    assert '"ours"' not in "".join(contents(pack(run, "fake", tmp_path)).values())
    copy = RunDir(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    copy.trial(2).log.write_text(f"writes to {tmp_path}\n")
    with pytest.raises(NotKeptError, match=r"its trials/0002/subject\.log tells of .*, which is of this machine alone"):
        pack(copy, "fake", tmp_path)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_what_is_kept_for_pictures_is_small_and_of_no_place(archive: Path) -> None:
    assert archive.name.removesuffix(".tar.xz") in {shot.run for shot in SHOTS if shot.page == "report"}
    assert archive.stat().st_size <= BYTES_MAX
    for name, text in contents(archive).items():
        assert [f'"{word}"' for word in DROPPED if f'"{word}"' in text] == [], name
        assert PLACE.findall(text) == [], name
