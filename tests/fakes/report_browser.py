"""A real browser for tests of the report: files from disk, without a network; a complaint or a request of a page fails
the test. The fixtures are imported by the modules that use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from fakes.needs import need_browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # it reaches this machine only
]
WAIT_MS = 180_000
EVIL = "</script><img src=x onerror=\"document.title='broken'\">"

# The contents of a drawn element: marks that are lines, dots or areas, and the words on them.
DRAWN = """e => ({svg: e.querySelectorAll('svg').length,
  marks: e.querySelectorAll('svg path, svg circle, svg polyline, svg rect').length,
  words: [...e.querySelectorAll('svg text')].map(t => t.textContent).join(' '),
  width: e.querySelector('svg')?.getBoundingClientRect().width ?? 0,
  room: e.getBoundingClientRect().width})"""

# Texts with less than WCAG 2's contrast (4.5 to 1, or 3 to 1 for large text), in every element with text of its own,
# except within elements that the selector `beside` names.
POOR_CONTRAST = """beside => {
  const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest(beside) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parse(style.color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) poor.push([e.textContent.slice(0, 30), ratio]);
  }
  return poor; }"""

# Waits until a page is redrawn after a change of its width or colours: it waits 120 ms for further changes.
SETTLED = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 200)))"

Open = Callable[..., Page]


def resize(page: Page, width: int, height: int) -> None:
    """Gives the page this size, and waits until it is drawn for it: the browser may tell a page of its new size later
    than it answers."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("([width, height]) => innerWidth === width && innerHeight === height", arg=[width, height])
    page.evaluate(SETTLED)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a module in a worker, since starting it takes longer than most of them. Not for the
    whole session: while it runs, its event loop does, and no other test of that worker could use one."""
    with chromium() as browser:
        yield browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yields a running Chromium of this machine."""
    binary = need_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=ARGUMENTS, timeout=WAIT_MS)
        yield browser
        browser.close()


class Pages:
    """Pages from disk without a network, with their complaints and requests."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._complaints: list[str] = []
        self._requests: list[str] = []
        self._contexts: list[BrowserContext] = []
        self._shared: dict[tuple[Path, int], Page] = {}

    def open(self, path: Path, *, width: int = 1280, scheme: str = "light") -> Page:
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            offline=True,
            accept_downloads=True,
        )
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", lambda message: self._complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self._complaints.append(str(error)))
        page.on("request", lambda request: self._requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        assert page.evaluate("document.documentElement.dataset.ready") == "yes"
        return page

    def shared(self, path: Path, *, width: int = 1280) -> Page:
        """The one page of this file and width that all tests share."""
        if (path, width) not in self._shared:
            self._shared[path, width] = self.open(path, width=width)
        return self._shared[path, width]

    def check(self) -> None:
        """Checks that no script has complained, and that no page requested anything from a network."""
        assert self._complaints == []
        assert [url for url in self._requests if not url.startswith(("file:", "blob:", "data:"))] == []

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens files without a network. At the end of the test no script may have complained, and nothing may have been
    requested."""
    pages = Pages(browser)
    yield pages.open
    pages.close()
    pages.check()


@pytest.fixture(scope="module")
def shared_pages(browser: Browser) -> Iterator[Pages]:
    pages = Pages(browser)
    yield pages
    pages.close()


@pytest.fixture
def look(shared_pages: Pages) -> Iterator[Open]:
    """Opens files as `visit` does, but each only once for all tests of a module, which must leave its page as they
    found it."""
    yield shared_pages.shared
    shared_pages.check()
