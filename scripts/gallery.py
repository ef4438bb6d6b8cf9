"""Pictures of real runs for the docs: `make gallery` opens reports and the live page in Chromium, writes docs/images.

In: the kept data of docs/experiments; run directories, or folders of them. Out: one small PNG for each of `SHOTS`. A
picture of kept data has the figures of its page. Any other picture of a report shows the newest finished run of its
experiment, or one made anew with `--run`; runs are copied before anything is written to them. A picture of the live
page shows a run that is started for it and stopped afterwards."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from powerband.analyze.stored import stored_analysis
from powerband.files.experiment_file import load_experiment
from powerband.report.html.report import write_report
from powerband.search.session import analyse_run
from powerband.store import RunDir
from powerband.trials.instruments.visitor import find_browser
from scripts.keep import DATA
from scripts.tutorial import prepare, shown

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
BYTES_MAX = 150_000
COLOURS = (256, 128, 64)  # the first that makes the picture small enough
# Live charts are canvases, drawn as figures arrive: a canvas of one colour shows nothing yet.
_DRAWN = """() => [...document.querySelectorAll('canvas')].filter(canvas => {
  const picture = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(picture.data.buffer)).size > 2;
}).length"""
_LIVE_S = 60.0
_MEASURING_MS = 4000
_DONE, _BEGUN_S = 12, 600.0  # number of finished trials when a run in progress is shown, and the longest wait for them
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"]


@dataclass(frozen=True)
class Source:
    """A run that pictures show: the name of its experiment, whether it ran on the nodes of a cluster, and the command
    that makes it in a folder with the examples."""

    name: str
    command: tuple[str, ...]
    on_nodes: bool = False


@dataclass(frozen=True)
class Shot:
    """One picture. `run`: an experiment that comes with powerband, or a key of `SOURCES`. `page`: `report` of a
    finished run, `kept` for a report of kept data, which has no single trials, or `live`, of a run that is started for
    the picture and then stopped. `of`: the part of the page, by the heading of a section or a CSS selector; empty: its
    top. `height`: the largest height of the picture. `before`: CSS selectors of the elements to click first."""

    name: str
    run: str
    page: str = "report"
    of: str = ""
    width: int = 1100
    height: int = 900
    dark: bool = False
    scale: float = 1.5
    before: tuple[str, ...] = ()


POWERBAND = (sys.executable, "-m", "powerband")
SOURCES = {
    "race": Source("tune", (*POWERBAND, *shown("tune", "--users 32"))),
    "revisions": Source("compare", (*POWERBAND, *shown("compare", "slower_server.py"))),
    "cluster": Source("quickstart", (sys.executable, "-m", "fakes.hosts"), on_nodes=True),
}
"""The runs that are not of an experiment that comes with powerband: the tutorial's, and that of `make cluster-demo`."""

SHOTS = (
    Shot("report", "quickstart", height=1450, scale=1.2),
    Shot("report-dark", "thread-vs-pool", height=1500, scale=1.2, dark=True),
    Shot("report-phone", "thread-vs-pool", width=390, height=844, scale=1.5),
    Shot("response-times", "thread-vs-pool", of="Response times", height=700),
    Shot("why", "thread-vs-pool", of="Why", height=900),
    Shot("trial", "socketcluster-concurrency", of="Every trial", height=1125, scale=1.2),
    Shot("live", "thread-vs-pool", page="live", height=1230, scale=1.2),
    Shot("race", "race", of="The race", height=900),
    Shot("revisions", "revisions", height=900, scale=1.2),
    Shot("cluster", "cluster", of="Nodes", height=600),
    Shot("pool-vs-event-loop", "pool-vs-event-loop", of="Settings compared", height=508),
    Shot("thread-vs-pool", "thread-vs-pool", page="kept", of="Settings compared", height=560),
    Shot("vertx-instances", "vertx-instances", page="kept", of="Settings compared", height=560),
    Shot("spring-executor", "spring-executor", page="kept", of="Settings compared", height=515),
    Shot("infinite-reflection", "infinite-reflection", page="kept", of="Two parameters at once", height=700),
    Shot("socketcluster-workers", "socketcluster-workers", page="kept", of="Two parameters at once", height=700),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "runs", nargs="*", type=Path, default=[ROOT / "runs"], help="run directories, or folders of them"
    )
    parser.add_argument("--run", action="store_true", help="run the experiments of which there is no run")
    parser.add_argument("--only", action="append", metavar="NAME", help="make this picture only; may be repeated")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where pictures go")
    given = parser.parse_args(arguments)
    shots = [shot for shot in SHOTS if not given.only or shot.name in given.only]
    browser = find_browser()
    if browser is None:
        sys.stderr.write("no Chromium on PATH: install Debian's package chromium\n")
        return 5
    with tempfile.TemporaryDirectory() as scratch:
        reports: dict[tuple[str, str], Path | None] = {}
        for page, run in {(shot.page, shot.run) for shot in shots}:
            if page == "kept":
                reports[page, run] = _kept(run, Path(scratch))
            elif page == "report":
                reports[page, run] = _copied(run, given.runs, Path(scratch), given.run)
        with sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
            taken = {shot.name: _made(shot, reports.get((shot.page, shot.run)), opened, given.out) for shot in shots}
            opened.close()
    if left_out := [name for name, made in taken.items() if not made]:
        sys.stderr.write(f"not made: {', '.join(left_out)}\n")
    return 1 if left_out else 0


def _made(shot: Shot, run: Path | None, browser: Browser, out: Path) -> bool:
    if run is None and shot.page != "live":
        sys.stderr.write(f"{shot.name}: there is no finished run for it: make it with --run\n")
        return False
    picture = _small(_taken(shot, run, browser))
    (out / f"{shot.name}.png").write_bytes(picture)
    sys.stderr.write(f"{shot.name}: {len(picture) / 1000:.0f} KB\n")
    return True


def _kept(name: str, scratch: Path) -> Path:
    """A copy of the newest kept data of an experiment, with a report."""
    copy = scratch / f"kept-{name}"
    shutil.copytree(max(DATA.glob(f"{name}-[0-9]*")), copy)
    packed = (copy / "analysis.json.gz").read_bytes()
    write_report(RunDir(copy), stored_analysis(gzip.decompress(packed).decode()))
    return copy


def _copied(key: str, folders: Sequence[Path], scratch: Path, may_run: bool) -> Path | None:
    """A copy of the newest finished run for `Shot.run`, with a new report; None if there is none."""
    source = SOURCES.get(key) or Source(key, (*POWERBAND, "run", key))
    given = [
        path for folder in folders for path in ([folder] if (folder / "plan.jsonl").is_file() else folder.glob("*"))
    ]
    found = sorted((path for path in given if _is_finished_run(path, source)), key=lambda path: path.name)
    if not found and may_run:
        made = scratch / f"made-{key}"
        made.mkdir()
        prepare(made)
        paths = [str(ROOT / "tests"), *sys.path]
        # The exit code is 1 if a claim was refuted here, or a revision is worse.
        subprocess.run(
            source.command, cwd=made, check=False, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        found = [path for path in (made / "runs").glob("*") if _is_finished_run(path, source)]
    if not found:
        return None
    # The copy has a folder of its own, which `powerband watch` can be given.
    copy = scratch / f"runs-{key}" / found[-1].name
    shutil.copytree(found[-1], copy)
    run = RunDir.open(copy)
    write_report(run, analyse_run(load_experiment(run.experiment), run))
    return copy


def _is_finished_run(path: Path, source: Source) -> bool:
    """True for a folder named `<day>-<time>-<experiment>` in which at least half of the planned trials were
    measured."""
    named = re.fullmatch(rf"\d{{8}}-\d{{6}}-{re.escape(source.name)}(-\d+)?", path.name)
    if not named or not (path / "plan.jsonl").is_file() or (path / "nodes.json").is_file() != source.on_nodes:
        return False
    planned = len((path / "plan.jsonl").read_text().splitlines())
    measured = [record for record in path.glob("trials/*/record.json") if _status(record) == "measured"]
    return planned > 0 and len(measured) >= 0.5 * planned


def _status(record: Path) -> str:
    return str(json.loads(record.read_text())["status"])


def _taken(shot: Shot, run: Path | None, browser: Browser) -> bytes:
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
        device_scale_factor=shot.scale,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        if run is None:
            with _under_way(shot.run) as url:
                page.goto(url)
                page.wait_for_selector("html[data-ready]", timeout=30_000)
                _wait_until_drawn(page)
                return _shown(page, shot)
        page.goto((run / "report.html").as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        return _shown(page, shot)
    finally:
        context.close()


def _wait_until_drawn(page: Page) -> None:
    """Waits until the trial in flight is measured and drawn. It polls, since the page's content-security policy forbids
    the functions that playwright would wait with."""
    deadline = time.monotonic() + _LIVE_S
    while page.evaluate(_DRAWN) < 2 or "measuring for" not in page.locator("#phase").inner_text():
        if time.monotonic() > deadline:
            raise SystemExit(f"the live page drew nothing within {_LIVE_S:.0f} s")
        page.wait_for_timeout(200)
    page.wait_for_timeout(_MEASURING_MS)


def _shown(page: Page, shot: Shot) -> bytes:
    for selector in shot.before:
        page.click(selector)
    if not shot.of:
        return page.screenshot()
    selector = shot.of if shot.of[0] in ".#[" else f'section:has(> h2:text-is("{shot.of}"))'
    box = page.locator(selector).first.bounding_box()
    if box is None:
        raise SystemExit(f"{shot.name}: the page shows no {shot.of}")
    # The picture begins above the section and has its whole width, so that it includes the page's background.
    top = max(0.0, box["y"] - 16)
    clip = {"x": 0, "y": top, "width": shot.width, "height": min(shot.height, box["height"] + 32)}
    return page.screenshot(clip=clip, full_page=True)


@contextmanager
def _under_way(name: str) -> Iterator[str]:
    """Yields the address of the live page of a run, once some of its trials are done; the run is stopped afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        command = [sys.executable, "-m", "powerband", "run", name, "--live", "--runs", f"{folder}/runs"]
        with said.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + _BEGUN_S
            while len(list(Path(folder).glob("runs/*/trials/*/record.json"))) < _DONE:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"`{' '.join(command)}` did not get far: {said.read_text()[-400:]}")
                time.sleep(0.5)
            address = re.search(r"live page: (http://\S+)", said.read_text())
            if address is None:
                raise SystemExit(f"the run told of no live page: {said.read_text()[-400:]}")
            yield address[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _small(png: bytes) -> bytes:
    """The picture reduced to its most frequent colours. Flat pages have few colours; the others are at edges."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    found = sorted(image.getcolors(image.width * image.height) or [], reverse=True)
    for colours in COLOURS:
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for _, colour in found[:colours] for part in _parts(colour)])
        made = io.BytesIO()
        image.quantize(palette=palette, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
        if made.tell() <= BYTES_MAX:
            return made.getvalue()
    raise SystemExit(
        f"a picture of {image.size} is larger than {BYTES_MAX} bytes with {COLOURS[-1]} colours: show less"
    )


def _parts(colour: object) -> tuple[int, ...]:
    return colour if isinstance(colour, tuple) else (0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
