"""The pages. In: a folder of run directories. Out: an ASGI application; `serving.py` serves it.

  GET /                           the runs of the folder
  GET /runs/NAME/                 one run, live
  GET /runs/NAME/events           its changes, as server-sent events
  GET /runs/NAME/state            its current state, as JSON
  GET /runs/NAME/trials/NUMBER    one trial second by second, as JSON
  GET /runs/NAME/report           its report, as written, or made now if the run is at rest
  GET /compare?a=NAME&b=NAME      two runs side by side
  GET /static/FILE                scripts, styles and icons of the pages
  GET /metrics                    the running runs and the latest one, for Prometheus
  GET /subject/metrics            the metrics pages of the running servers, for Prometheus

Runs are read through `follow.py` only, and nothing is ever written. `guard.py` controls access.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from powerband.analyze.runs.two_runs import ComparedRun, compare_two
from powerband.base.errors import UsageError
from powerband.live.feed import VIEWERS_MAX, Feed
from powerband.live.follow import OUT_OF_FILES, RunFollower
from powerband.live.growing_files import is_out_of_files, plain_text, read_plain, refused, within
from powerband.live.guard import REPORT_POLICY, Access, Guard
from powerband.live.history import History
from powerband.live.openmetrics import exposition
from powerband.live.pages import compare_page, history_page, message_page, run_address, run_page
from powerband.live.payload import as_json, current_row, point_rows, run_row, trial_row
from powerband.live.state import RunState, RunStatus
from powerband.live.subject_page import CONTENT_TYPE, NoPageError, Relay
from powerband.report.html.gather import gather
from powerband.report.html.report import render_page
from powerband.search.earlier import earlier_runs
from powerband.store import read_host

FEEDS_MAX = 8  # runs kept in memory; the least recently requested one without viewers is dropped first
_KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "txt": "text/plain"}
_ECHARTS, _SHARED = "echarts.min.js", ("theme.css", "arrows.js")  # those of the report


class LivePages:
    """The pages of a folder of runs. `app`: the ASGI application, behind its guard. `history`: the runs."""

    def __init__(self, root: Path, access: Access) -> None:
        self.history = History(root)
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._report_made: tuple[tuple[str, int], str] | None = None  # by the run's name and its state's version
        self._relay = Relay(self._scraped)
        self._static = _static_files()
        routes = [
            Route("/", self._home),
            Route("/runs/{name}", self._slash),
            Route("/runs/{name}/", self._run),
            Route("/runs/{name}/events", self._events),
            Route("/runs/{name}/state", self._state),
            Route("/runs/{name}/trials/{number}", self._trial),
            Route("/runs/{name}/report", self._report),
            Route("/compare", self._compare),
            Route("/static/{name}", self._file),
            Route("/metrics", self._metrics),
            Route("/subject/metrics", self._subject_metrics),
            Route("/{rest:path}", self._nothing),
        ]
        self.app: ASGIApp = Guard(
            Starlette(routes=routes, exception_handlers={OSError: _cannot_open, NoRunError: _no_run}), access
        )

    def feed(self, name: str) -> Feed:
        """The feed of one run of the folder. Raises NoRunError if there is no run of this name."""
        path = self.history.find(name)
        if path is None:
            raise NoRunError(name)
        if name not in self._feeds:
            self._feeds[name] = Feed(RunFollower(path))
        self._feeds.move_to_end(name)
        self._forget()
        return self._feeds[name]

    @property
    def viewers(self) -> int:
        """How many viewers are connected to all runs together."""
        return sum(feed.viewers for feed in self._feeds.values())

    async def close(self) -> None:
        """Sends all viewers the last state, and ends their streams."""
        await asyncio.gather(*(feed.close() for feed in self._feeds.values()))

    def _forget(self) -> None:
        """Drops feeds beyond `FEEDS_MAX`, but never the last one, which is being requested."""
        for name, feed in list(self._feeds.items())[:-1]:
            if len(self._feeds) <= FEEDS_MAX:
                return
            if feed.idle:
                feed.follower.close()
                del self._feeds[name]

    # --- pages --------------------------------------------------------------------------------------------------------

    async def _home(self, _request: Request) -> Response:
        lines = await asyncio.to_thread(self.history.lines)
        return HTMLResponse(history_page(lines, plain_text(str(self.history.root))))

    async def _slash(self, request: Request) -> Response:
        return RedirectResponse(run_address(request.path_params["name"]), 308)

    async def _run(self, request: Request) -> Response:
        name = request.path_params["name"]
        if self.history.find(name) is None:
            raise NoRunError(name)
        return HTMLResponse(run_page(name, name))

    async def _events(self, request: Request) -> Response:
        feed = self.feed(request.path_params["name"])
        if self.viewers >= VIEWERS_MAX:
            return Response(f"{VIEWERS_MAX} viewers are connected, which is the most\n", 503)
        return EventStream(feed.messages)

    async def _state(self, request: Request) -> Response:
        name = request.path_params["name"]
        feed = self.feed(name)
        state = await _settled(feed)
        current = state.current
        return _json(
            {
                "run": run_row(state, name),
                "trials": [trial_row(line, state.unit) for line in state.trials],
                "current": None if current is None else {**current_row(current), "points": point_rows(current.points)},
                "eta_s": state.eta_s,
            }
        )

    async def _trial(self, request: Request) -> Response:
        name, written = request.path_params["name"], request.path_params["number"]
        feed = self.feed(name)
        state = await feed.fresh()
        number = int(written) if re.fullmatch("[0-9]{1,9}", written) else 0  # trials count from 1
        follower = feed.follower.trial(number)
        if follower is None:
            return _not_found(f"{name} has no trial {written} that can be read.")
        try:
            over = state.current is None or state.current.number != number
            while await asyncio.to_thread(lambda: follower.read(over=over)):
                await asyncio.sleep(0)
            trial = follower.state
        finally:
            follower.close()
        return _json({**current_row(trial), "points": point_rows(trial.points), "damaged": follower.damaged})

    async def _report(self, request: Request) -> Response:
        name = request.path_params["name"]
        feed = self.feed(name)
        state = await _settled(feed)
        back = [(run_address(name), "The run")]
        if state.status is RunStatus.RUNNING:
            return HTMLResponse(message_page("No report yet", "The report is made when the run ends.", back), 404)
        written = await asyncio.to_thread(read_plain, feed.follower.run.report)
        if written is not None and (state.because or not feed.follower.report_is_old):
            return HTMLResponse(written, headers={"content-security-policy": REPORT_POLICY})
        if state.because or feed.follower.analysis is None:
            return HTMLResponse(message_page("No report", state.because or "No trial of it was measured.", back), 404)
        try:
            text = await asyncio.to_thread(self._made_report, name, feed, state)
        except Exception as error:  # a foreign directory may contain anything; report it
            why = f"It cannot be made from what the directory holds ({type(error).__name__}: {error})."
            return HTMLResponse(message_page("No report", why, back), 404)
        return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY})

    def _made_report(self, name: str, feed: Feed, state: RunState) -> str:
        """The report of a run that has none, or an old one, as `powerband report` would write it; cached in memory, not
        written. Raises UsageError if its files must not be opened."""
        wanted = name, state.version
        if self._report_made is None or self._report_made[0] != wanted:
            assert feed.follower.analysis is not None
            if why := refused(within(feed.follower.run.trials)):
                raise UsageError(why)
            page = plain_text(render_page(gather(feed.follower.run, feed.follower.analysis)))
            self._report_made = wanted, page
        return self._report_made[1]

    async def _compare(self, request: Request) -> Response:
        names = request.query_params.get("a", ""), request.query_params.get("b", "")
        home = [("/", "All runs")]
        if not all(names) or names[0] == names[1]:
            return HTMLResponse(message_page("Nothing to compare", "Choose two different runs.", home), 400)
        told: list[ComparedRun] = []
        states: list[RunState] = []
        folders: list[Path] = []
        for letter, name in zip("AB", names, strict=True):
            feed = self.feed(name)
            state = await _settled(feed)
            experiment, analysis = feed.follower.experiment, feed.follower.analysis
            if state.because or experiment is None or analysis is None:
                why = state.because or f"{name} has no analysis yet: none of its trials was judged."
                return HTMLResponse(message_page("Nothing to compare", why, home), 409)
            host = await asyncio.to_thread(read_host, feed.follower.run.host)
            told.append(ComparedRun(letter, experiment, analysis, host))
            states.append(state)
            folders.append(feed.follower.run.path)
        try:
            earlier = await asyncio.to_thread(earlier_runs, told[0], folders[0], folders[1])
            found = await asyncio.to_thread(compare_two, told[0], told[1], earlier)
            return HTMLResponse(compare_page((names[0], names[1]), (states[0], states[1]), found))
        except UsageError as error:
            return HTMLResponse(message_page("Nothing to compare", f"{error}.", home), 409)
        except Exception as error:  # a foreign directory may contain anything; report it
            why = f"What the directories hold cannot be compared ({type(error).__name__}: {error})."
            return HTMLResponse(message_page("Nothing to compare", why, home), 409)

    async def _file(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        if found is None:
            return _not_found("There is no such file.")
        content, kind, encoding = found
        headers = {"cache-control": "no-cache"} | ({"content-encoding": encoding} if encoding else {})
        return Response(content, media_type=kind, headers=headers)

    async def _metrics(self, request: Request) -> Response:
        text, kind = exposition(await self._scraped(), request.headers.get("accept"))
        return Response(text, headers={"content-type": kind})

    async def _subject_metrics(self, _request: Request) -> Response:
        try:
            text = await self._relay.page()
        except NoPageError as error:
            return Response(f"{error}\n", 502, media_type="text/plain")
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _scraped(self) -> list[RunState]:
        """The latest run, and all others that are running, as they are now: a scrape may come only once a minute, and
        what a trial writes meanwhile is more than one poll reads."""
        lines = await asyncio.to_thread(self.history.lines)
        names = [line.folder for at, line in enumerate(lines) if at == 0 or line.status is RunStatus.RUNNING]
        return [await _settled(self.feed(name)) for name in names if self.history.find(name) is not None]

    async def _nothing(self, _request: Request) -> Response:
        return _not_found("There is no such page.")


class NoRunError(Exception):
    """There is no run of this name in the folder."""


class EventStream(Response):
    """Server-sent events until the messages end or the viewer leaves, whichever is noticed first."""

    media_type = "text/event-stream"

    def __init__(self, messages: Callable[[], AsyncGenerator[bytes, None]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        tasks = [asyncio.ensure_future(self._tell(send)), asyncio.ensure_future(_left(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, send: Send) -> None:
        with contextlib.suppress(OSError):
            async with contextlib.aclosing(self._messages()) as messages:
                async for message in messages:
                    await send({"type": "http.response.body", "body": message, "more_body": True})
                    # Sending waits for room before it writes and not after: an empty piece waits until the viewer has
                    # taken this message, before the next one is made.
                    await send({"type": "http.response.body", "body": b"", "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _settled(feed: Feed) -> RunState:
    """The state once everything on disk has been read."""
    state = await feed.fresh()
    while feed.follower.more:
        state = await feed.fresh()
    return state


def _json(told: Mapping[str, Any]) -> Response:
    return Response(as_json(told), media_type="application/json")


async def _cannot_open(_request: Request, error: Exception) -> Response:
    """The answer if a file or folder could not be opened: see `growing_files.is_out_of_files`."""
    return Response(f"powerband: {OUT_OF_FILES if is_out_of_files(error) else error}\n", 503, media_type="text/plain")


async def _no_run(_request: Request, error: Exception) -> Response:
    return _not_found(f"There is no run called {error} in this folder.")


def _not_found(why: str) -> Response:
    return HTMLResponse(message_page("Not found", why, [("/", "All runs")]), 404)


def _static_files() -> dict[str, tuple[bytes, str, str]]:
    """All files under /static/, by name: content, type, encoding. Requests are looked up here and never become
    paths."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for entry in files("powerband.live").joinpath("static").iterdir():
        kind = _KINDS.get(entry.name.rpartition(".")[2])
        if kind is not None:
            found[entry.name] = entry.read_bytes(), kind, ""
    report = files("powerband.report")
    for name in _SHARED:
        found[name] = report.joinpath("templates", name).read_bytes(), _KINDS[name.rpartition(".")[2]], ""
    found[_ECHARTS] = report.joinpath("static", f"{_ECHARTS}.gz").read_bytes(), _KINDS["js"], "gzip"
    return found
