"""Keeps a whole run for pictures of its report: `python -m scripts.whole NAME RUN` writes docs/images/runs/NAME.tar.xz.

In: the directory of a finished run. Out: its files without the names of machines and other programs, places on the
machine, and what is derived. `unpacked` gives a run directory again, of which `analysed` makes the analysis anew. Where
the raw data of all trials are too large, `--raw 2` keeps those of trial 2 alone, and `--raw` those of none; the results
of trials are then those of the run's own analysis.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import sys
import tarfile
from collections.abc import Collection
from pathlib import Path

from powerband.analyze.stored import stored_analysis
from powerband.files.experiment_file import load_experiment
from powerband.model.results import Analysis
from powerband.search.session import analyse_results, analyse_run
from powerband.store import RunDir
from scripts.keep import DROPPED, ROOT, NotKeptError, anywhere, check_places

RUNS = ROOT / "docs" / "images" / "runs"
BYTES_MAX = 600_000  # of an archive
_LEFT_OUT = (".lock", "report.html", "nodes_now.json", "build.log", "visitor.log")


def pack(run: RunDir, name: str, into: Path = RUNS, raw: Collection[int] | None = None) -> Path:
    """Writes the archive of a run, and returns its path. `raw`: the trials whose raw files are kept; None: all. The
    same run gives the same bytes. Raises NotKeptError if it is too large or names this machine or a place on it."""
    texts = _texts(run, raw)
    check_places(run, texts)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, text in sorted(texts.items()):
            content = text.encode()
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    packed = lzma.compress(tar.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    if len(packed) > BYTES_MAX:
        raise NotKeptError(f"{run.path}: {len(packed):,} bytes, and {BYTES_MAX:,} are the most: see --raw")
    into.mkdir(exist_ok=True)
    path = into / f"{name}.tar.xz"
    path.write_bytes(packed)
    return path


def unpacked(archive: Path, folder: Path) -> RunDir:
    """The run directory in an archive, unpacked into a folder that is not there yet."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return RunDir.open(folder)


def analysed(run: RunDir) -> Analysis:
    """The analysis that the present code makes of an unpacked run. If it has the raw files of some trials only, the
    evidence of bottlenecks stands as the run itself worded it."""
    experiment = load_experiment(run.experiment)
    if not run.analysis.is_file():
        return analyse_run(experiment, run)
    trials = stored_analysis(run.analysis.read_text()).trials
    return analyse_results(experiment, run, [run.planned()[trial.number] for trial in trials], trials)


def _texts(run: RunDir, raw: Collection[int] | None) -> dict[str, str]:
    """The texts of the files that are kept, by their paths within the run."""
    left_out = {*_LEFT_OUT, *(() if raw is not None else (run.analysis.name,))}
    found = {}
    for file in (path for path in run.path.rglob("*") if path.is_file() and path.name not in left_out):
        path = file.relative_to(run.path)
        if raw is None or path.parts[0] != run.trials.name or file.name == "record.json" or int(path.parts[1]) in raw:
            found[str(path)] = file.read_text()
    found |= anywhere(run)
    for path, text in found.items():
        if path == run.nodes.name:
            found[path] = _without_names(text)
        elif path == run.analysis.name:
            told = json.loads(text)
            found[path] = json.dumps({**told, "trials": [trial | {"neighbours": {}} for trial in told["trials"]]})
        elif path.endswith("/record.json"):
            found[path] = _of_kept_files(text, path.removesuffix("record.json"), found)
    return found


def _without_names(text: str) -> str:
    """`nodes.json` without the names of the nodes' machines."""
    told = json.loads(text)
    nodes = {
        node: {key: fact for key, fact in facts.items() if key not in DROPPED} for node, facts in told["nodes"].items()
    }
    return json.dumps({**told, "nodes": nodes})


def _of_kept_files(text: str, folder: str, kept: Collection[str]) -> str:
    """A record that tells of the files that are kept, since a trial without one of its files would be damaged, and not
    of the machine's other programs."""
    record = json.loads(text) | {"neighbours": {}}
    record["files"] = {name: size for name, size in record.get("files", {}).items() if folder + name in kept}
    return json.dumps(record)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps a whole run for pictures of its report.")
    parser.add_argument("name", help="`run` of the pictures in scripts/gallery.py")
    parser.add_argument("run", type=Path, help="directory of a finished run")
    parser.add_argument("--raw", type=int, nargs="*", metavar="TRIAL", help="the trials whose raw files are kept: all")
    given = parser.parse_args()
    try:
        path = pack(RunDir.open(given.run), given.name, raw=given.raw)
    except NotKeptError as reason:
        sys.exit(str(reason))
    sys.stderr.write(f"kept: {path.relative_to(ROOT)}, {path.stat().st_size / 1000:.0f} KB; next: `make gallery`\n")


if __name__ == "__main__":
    main()
