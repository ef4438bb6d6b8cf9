"""The docs as a site: built as `make site` builds them, and opened in a real browser. Nothing may be requested from
another host.

Needs uv, a package index and Chromium."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from fakes.needs import without
from fakes.pages import ROOT
from fakes.report_browser import WAIT_MS

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.long, pytest.mark.browser]

HOME = Path.home()  # of the user who runs the tests: uv's cache is there
BRIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  return (r + g + b) / 3; }"""
DARK = 'data-md-color-media="(prefers-color-scheme: dark)" data-md-color-scheme="slate"'
WIDTHS = (1280, 390)  # px: a desktop and a phone
# The width that a page needs, once its scripts have put wide tables into boxes that scroll: after 30 s at most.
NEEDED = """async width => {
  const needed = () => document.documentElement.scrollWidth;
  for (let i = 0; i < 1500 && needed() > width; i++) await new Promise(done => setTimeout(done, 20));
  return needed(); }"""


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site. A warning, as of a link that leads nowhere, fails the build."""
    uv = shutil.which("uv") or ROOT / ".tools/bin/uv"
    if not Path(uv).is_file():
        without("no uv here: `make setup` brings it")
    (line,) = re.findall(r"^\t.*\$\(UV\) (tool run .*mkdocs build.*)$", (ROOT / "Makefile").read_text(), re.M)
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "UV_CACHE_DIR": str(HOME / ".cache" / "uv")}
    command = [str(uv), *line.split(), "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[str]:
    """The address at which the site is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(built))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_is_shown_wide_and_narrow_and_asks_no_other_host(
    scheme: str, built: Path, site: str, browser: Browser
) -> None:
    """Each page is loaded once, and shown at both widths, first at that of the page before. Colours are the theme's:
    each page offers both, and one of each folder is loaded in the dark ones, too."""
    names = pages(built)
    assert [name for name in names if DARK not in (built / name).read_text()] == []
    if scheme == "dark":
        names = list({posixpath.dirname(name): name for name in names}.values())
    context = browser.new_context(color_scheme=scheme, service_workers="block")  # type: ignore[arg-type]
    faults: list[str] = []
    try:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("request", lambda request: faults.append(request.url) if is_elsewhere(request.url, site) else None)
        page.on("console", lambda message: faults.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
        for at, name in enumerate(names):
            page.goto(site + name, wait_until="load")
            if not page.locator("article h1").first.inner_text():
                faults.append(f"{name}: no heading")
            if (page.evaluate(BRIGHTNESS) < 80) is not (scheme == "dark"):
                faults.append(f"{name}: not {scheme}")
            for width in WIDTHS[:: 1 if at % 2 else -1]:
                page.set_viewport_size({"width": width, "height": 900})
                if (needed := page.evaluate(NEEDED, width)) > width:
                    faults.append(f"{name}: {needed} px wide on a screen of {width} px")
    finally:
        context.close()
    assert faults == []


def test_the_search_finds_a_page_without_another_host(site: str, browser: Browser) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{site}index.html", wait_until="networkidle")
        page.locator("input.md-search__input").click()
        page.keyboard.type("connect_refused", delay=20)
        # Each letter that is typed brings results of its own.
        first = page.locator("a.md-search-result__link").first
        expect(first).to_have_attribute("href", re.compile(r"failures\.html"), timeout=WAIT_MS)
        assert [url for url in requested if is_elsewhere(url, site)] == []
    finally:
        context.close()


def test_each_link_leads_somewhere_and_nothing_else_is_of_another_host(built: Path) -> None:
    """Within the site there are the page and the anchor; addresses outside are https."""
    texts = {name: (built / name).read_text() for name in pages(built)}
    anchors = {
        name: {unescape(anchor) for anchor in re.findall(r'\bid="([^"]+)"', text)} for name, text in texts.items()
    }
    faults = []
    for name, text in texts.items():
        for tag, attribute in set(re.findall(r'<(\w+)\b[^>]*?\b(?:href|src)="([^"]*)"', text)):
            target = urlsplit(unescape(attribute))
            there = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), unquote(target.path)))[1:]
            if target.scheme or target.netloc:
                is_right = tag == "a" and target.scheme == "https" and "." in target.netloc
            elif not target.path:
                is_right = not target.fragment or target.fragment in anchors[name]
            elif target.fragment:
                is_right = unquote(target.fragment) in anchors.get(there, ())
            else:
                is_right = (built / there).exists()
            if not is_right:
                faults.append(f"{name}: {attribute}")
    assert faults == []


def test_each_page_is_in_the_navigation(built: Path) -> None:
    """From every page each other one is reached."""
    index = (built / "index.html").read_text()
    others = set(pages(built)) - {"404.html", "index.html"}
    assert len(others) > 60
    assert sorted(page for page in others if f'href="{page}"' not in index) == []


def pages(built: Path) -> list[str]:
    return sorted(str(path.relative_to(built)) for path in built.rglob("*.html"))


def is_elsewhere(url: str, site: str) -> bool:
    return not url.startswith((site, "data:", "blob:"))
