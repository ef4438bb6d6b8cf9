"""The docs as a site: built as `make site` builds them, and opened in a real browser. Nothing may be requested from
another host.

Needs uv, a package index and Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from fakes.needs import without
from fakes.pages import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.long, pytest.mark.browser]

HOME = Path.home()  # of the user who runs the tests: uv's cache is there
BRIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
  return (r + g + b) / 3; }"""


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
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
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


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
@pytest.mark.parametrize("name", ["index", "reference/json-output", "tutorial.ko"])
def test_a_page_is_shown_and_asks_no_other_host(
    name: str, scheme: str, width: int, site: str, browser: Browser
) -> None:
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", service_workers="block"
    )
    try:
        page = context.new_page()
        requested: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{site}{name}.html", wait_until="networkidle")
        assert page.locator("article h1").inner_text()
        assert (page.evaluate(BRIGHTNESS) < 80) is dark
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [url for url in requested if not url.startswith((site, "data:", "blob:"))] == []
        assert complaints == []
    finally:
        context.close()


def test_the_search_finds_a_page_without_another_host(site: str, browser: Browser) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{site}index.html", wait_until="networkidle")
        page.locator("input.md-search__input").click()
        page.keyboard.type("connect_refused", delay=20)
        page.locator("a.md-search-result__link").first.wait_for(state="attached")
        found = page.locator("a.md-search-result__link").first.get_attribute("href")
        assert found is not None and "failures.html" in found
        assert [url for url in requested if not url.startswith((site, "data:", "blob:"))] == []
    finally:
        context.close()


def test_each_page_is_in_the_navigation(built: Path) -> None:
    """From every page each other one is reached."""
    index = (built / "index.html").read_text()
    pages = {str(path.relative_to(built)) for path in built.rglob("*.html")} - {"404.html", "index.html"}
    assert len(pages) > 60
    assert sorted(page for page in pages if f'href="{page}"' not in index) == []
