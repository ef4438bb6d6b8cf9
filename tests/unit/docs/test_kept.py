"""What is kept of runs for the pages of docs/experiments. That a page shows what its data say: test_reference.py."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from scripts.keep import BYTES_MAX, Kept, NotKeptError, all_kept, block, keep

from fakes.finished_run import new_run, run_to_its_end
from powerband.store import RunDir

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOST = {
    "wall_s": 1795568400.5,
    "hostname": "ours",
    "cpu": {"model": "Made-up CPU", "allowed": [0, 1]},
    "command": ["/somewhere/powerband", "run", "fake", "--runs", "/elsewhere"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = new_run(tmp_path_factory.mktemp("runs"))
    made.host.write_text(json.dumps(HOST))
    run_to_its_end(made)
    return made


def test_a_run_is_kept_without_its_place_and_the_machine_s_name(run: RunDir, tmp_path: Path) -> None:
    folder = keep(run, COMMIT, tmp_path)
    kept = Kept.read(folder)
    assert folder.name == "fake-2026-11-25" and kept.command == "powerband run fake"
    assert kept.host["commit"] == COMMIT and "hostname" not in kept.host
    assert kept.analysis == json.loads(run.analysis.read_text())
    packed = (folder / "analysis.json.gz").read_bytes()
    keep(run, COMMIT, tmp_path)
    assert (folder / "analysis.json.gz").read_bytes() == packed, "the same run, the same bytes"


def test_a_block_says_what_the_data_say(run: RunDir, tmp_path: Path) -> None:
    kept = Kept.read(keep(run, COMMIT, tmp_path))
    text = block(kept)
    trials = len(kept.analysis["trials"])
    begun = "`powerband run fake` on 2026-11-25; Made-up CPU, 2 CPUs; commit 0123456789ab"
    assert text.startswith(f"{begun}; {trials} of {trials} trials valid. [Its data](data/fake-2026-11-25).")
    for row in kept.analysis["settings"]:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{row['setting']['id']}` |")]
        shown = float(line.split(" | ")[1].removesuffix("/s").replace(",", ""))
        assert shown == pytest.approx(row["estimates"]["goodput_per_s"]["value"], rel=0.01)
        assert line.endswith(f" {row['verdict']} |")


def test_what_tells_of_this_machine_alone_or_measured_nothing_is_not_kept(run: RunDir, tmp_path: Path) -> None:
    copy = RunDir(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    copy.host.write_text(json.dumps({**HOST, "command": ["powerband", "run", f"{tmp_path}/mine.yaml"]}))
    with pytest.raises(NotKeptError, match="of this machine alone"):
        keep(copy, COMMIT, tmp_path / "data")
    shutil.rmtree(copy.trials)
    with pytest.raises(NotKeptError, match="no valid trial"):
        keep(copy, COMMIT, tmp_path / "data")


@pytest.mark.parametrize("kept", all_kept(), ids=lambda kept: kept.folder.name)
def test_what_is_kept_is_small_and_whole(kept: Kept) -> None:
    assert {path.name for path in kept.folder.iterdir()} == {"analysis.json.gz", "experiment.yaml", "host.json"}
    assert sum(path.stat().st_size for path in kept.folder.iterdir()) <= BYTES_MAX
    profile = f"-{kept.profile}" if kept.profile else ""
    assert kept.folder.name == f"{kept.analysis['name']}{profile}-{kept.date}"
    assert re.fullmatch("[0-9a-f]{40}", kept.host["commit"]) and "hostname" not in kept.host
    assert (kept.folder / "analysis.json.gz").read_bytes()[4:8] == bytes(4), "no time of packing"
