"""Pictures of real runs for the docs: `make gallery` opens reports in Chromium, and writes docs/images.

In: the runs of docs/images/runs (`scripts/whole.py`) and the kept data of docs/experiments. Out: one small PNG for each
of `SHOTS`, with the present words. `--only live` makes the picture of the live page, for which a run is started, and
stopped afterwards."""

from __future__ import annotations

import argparse
import gzip
import io
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
from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

from powerband.analyze.stored import stored_analysis
from powerband.report.html.report import write_report
from powerband.store import RunDir
from powerband.trials.instruments.visitor import find_browser
from scripts.keep import DATA
from scripts.whole import RUNS, analysed, unpacked

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
BYTES_MAX = 150_000
COLOURS = (256, 128, 64)  # the first that makes the picture small enough
# Live charts are canvases, drawn as figures arrive: a canvas of one colour shows nothing yet.
_DRAWN = """() => [...document.querySelectorAll('canvas')].filter(canvas => {
  const picture = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(picture.data.buffer)).size > 2;
}).length"""
_SHOW_ONLY = """ids => document.querySelectorAll('main > section').forEach(section => {
  if (ids.length > 0 && !ids.includes(section.id)) section.hidden = true;
})"""
_LIVE_S = 60.0
_MEASURING_MS = 4000
_DONE, _BEGUN_S = 12, 600.0  # number of finished trials when a run in progress is shown, and the longest wait for them
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"]


@dataclass(frozen=True)
class Shot:
    """One picture. `page`: `report` of a run in docs/images/runs, `kept` for a report of kept data, which has no single
    trials, or `live`, of a run that is started for the picture. `run`: the archive, the data or the experiment. `only`:
    the ids of the sections that are shown; empty: all. `click`: what is clicked first, as a CSS selector. `of`, `to`:
    the headings of sections, or CSS selectors, at which the picture begins and ends; without `of` it begins at the
    page's top. `height`: the largest height, of a screen."""

    name: str
    run: str
    page: str = "report"
    only: tuple[str, ...] = ()
    click: str = ""
    of: str = ""
    to: str = ""
    width: int = 1100
    height: int = 900
    dark: bool = False
    scale: float = 1.5


CHARTS = "#settings .grid"  # of all settings, side by side

SHOTS = (
    Shot("report", "quickstart", to=CHARTS, height=2000, scale=1.2),
    Shot("report-dark", "pool-vs-event-loop", to=CHARTS, height=2000, scale=1.2, dark=True),
    Shot("report-phone", "quickstart", to=".because:nth-of-type(5)", width=390),
    Shot("response-times", "pool-vs-event-loop", of="Response times"),
    Shot("why", "quickstart", of="Why", to="#why figure", height=1400, scale=1.2),
    Shot("trial", "socketcluster-concurrency", click="[data-trial='8']", of="Every trial", height=1125, scale=1.2),
    Shot("live", "thread-vs-pool", page="live", to='[data-panel="threads"]', height=1400, scale=1.2),
    Shot("race", "race", of="The race", height=1400, scale=1.2),
    Shot("revisions", "revisions", to=CHARTS, height=2000, scale=1.2),
    Shot("cluster", "cluster", only=("nodes",), to="Nodes", height=1400, scale=1.2),
    Shot("pool-vs-event-loop", "pool-vs-event-loop", of="Settings compared", to=CHARTS),
    Shot("thread-vs-pool", "thread-vs-pool", page="kept", of="Settings compared", to=CHARTS),
    Shot("vertx-instances", "vertx-instances", page="kept", of="Settings compared", to=CHARTS),
    Shot("spring-executor", "spring-executor", page="kept", of="Settings compared", to=CHARTS),
    Shot("infinite-reflection", "infinite-reflection", page="kept", of="Two parameters at once"),
    Shot("socketcluster-workers", "socketcluster-workers", page="kept", of="Two parameters at once"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="make this picture only; may be repeated")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where pictures go")
    given = parser.parse_args(arguments)
    shots = [shot for shot in SHOTS if (shot.name in given.only if given.only else shot.page != "live")]
    browser = find_browser()
    if browser is None:
        sys.stderr.write("no Chromium on PATH: install Debian's package chromium\n")
        return 5
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        reports = {(shot.page, shot.run): _report(shot, Path(scratch)) for shot in shots if shot.page != "live"}
        opened = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        for shot in shots:
            picture = _small(_taken(shot, reports.get((shot.page, shot.run)), opened))
            (given.out / f"{shot.name}.png").write_bytes(picture)
            sys.stderr.write(f"{shot.name}: {len(picture) / 1000:.0f} KB\n")
        opened.close()
    return 0


def _report(shot: Shot, scratch: Path) -> Path:
    """A new report of what is kept of a run."""
    folder = scratch / f"{shot.page}-{shot.run}"
    if (folder / "report.html").is_file():
        return folder / "report.html"
    if shot.page == "report":
        run = unpacked(RUNS / f"{shot.run}.tar.xz", folder)
        return write_report(run, analysed(run))
    shutil.copytree(max(DATA.glob(f"{shot.run}-[0-9]*")), folder)
    packed = (folder / "analysis.json.gz").read_bytes()
    return write_report(RunDir(folder), stored_analysis(gzip.decompress(packed).decode()))


def _taken(shot: Shot, report: Path | None, browser: Browser) -> bytes:
    """The picture of a report; without one, of the live page."""
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
        device_scale_factor=shot.scale,
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        if report is None:
            with _under_way(shot.run) as url:
                page.goto(url)
                page.wait_for_selector("html[data-ready]", timeout=30_000)
                _wait_until_drawn(page)
                return _shown(page, shot)
        page.goto(report.as_uri())
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
    page.evaluate(_SHOW_ONLY, list(shot.only))
    if shot.click:
        page.click(shot.click)
        page.evaluate("scrollTo(0, 0)")
    # The picture has the whole width of the page, and some of its background above and below.
    first, last = _box(page, shot.of or "body"), _box(page, shot.to or shot.of)
    top = max(0.0, first["y"] - 16)
    height = min(shot.height, last["y"] + last["height"] + 12 - top)
    return page.screenshot(clip={"x": 0, "y": top, "width": shot.width, "height": height}, full_page=True)


def _box(page: Page, of: str) -> FloatRect:
    selector = of if of == "body" or of[0] in ".#[" else f'section:has(> h2:text-is("{of}"))'
    box = page.locator(selector).first.bounding_box()
    if box is None:
        raise SystemExit(f"the page shows no {of}")
    return box


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
