"""The actor on a node: it passes orders on to a program there, and answers back. The program runs trials (`node.py`),
or engines that load the server of another node (`generator.py`).

Each node has one actor, as long as the run. Ray makes it, but it imports nothing of Ray. It measures nothing, and
sleeps while a trial runs. It has a lease: if it has not heard from the driver for `LEASE_S`, it ends the program, and
with that subject and engines; the trial did not happen. If the actor itself is killed, the program sees the end of its
stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from powerband.base.errors import PowerbandError
from powerband.base.procfs import TICKS_PER_S, process_stat
from powerband.cluster import generator, node
from powerband.cluster.parcels import unpack
from powerband.cluster.ray_look import put_off, timer_of_main_thread
from powerband.processes.engine_fleet import find_engine
from powerband.processes.host import host_facts
from powerband.store import is_alive, name_alive, open_private, write_atomically

LEASE_S = 3.0
"""The time from the driver's last call to the end of what it ordered; with `node.END_S` less than five seconds."""
LOOK_S = 2
"""The time from the driver's last call to Ray's next look for signals: more than a heartbeat, less than the lease."""
OPEN_LOG_BYTES = 4_000
_PREFIX = "powerband-node-"
_LINE_MOST = 1 << 24  # bytes of one answer

Answer = dict[str, Any]


class NodeActor:
    """The actor of a node. The driver calls its public methods from another machine, several at a time. An answer with
    `failed` says what went wrong: `kind` is the name of a class of `base/errors.py`, or `lost` if the program ended
    without saying why."""

    def __init__(self) -> None:
        self._program: asyncio.subprocess.Process | None = None
        self._work: Path | None = None
        self._heard_s = time.monotonic()
        self._why = ""
        self._phase = ""
        self._look: int | None = None  # the timer of Ray's look for signals
        self._watch: asyncio.Task[None] | None = None
        self._unpacking: asyncio.Future[None] | None = None

    async def facts(self) -> Answer:
        """The facts of this host, as in `host.json`; `failed` if there is no engine."""
        try:
            return host_facts(find_engine())
        except PowerbandError as error:
            return {"failed": {"kind": type(error).__name__, "message": str(error)}}

    async def open(self, order: Mapping[str, Any], parcels: Sequence[bytes]) -> Answer:
        """Starts the program that runs the trials of an experiment. `parcels`: the folders that it needs, in the order
        of `order["copied"]`."""
        work = await self._clear()
        moved = list(order["moved"])
        try:
            for number, parcel in enumerate(parcels):
                folder = work / "files" / str(number)
                self._unpacking = asyncio.ensure_future(asyncio.to_thread(unpack, parcel, folder))
                await self._unpacking  # in a thread, so that `heard` is answered meanwhile
                if self._work != work:
                    return {"failed": {"kind": node.LOST, "message": "the node was closed while it got ready"}}
        except (PowerbandError, OSError) as error:
            return {"failed": {"kind": "MeasurementError", "message": str(error)}}
        moved += [[there, str(work / "files" / str(n))] for n, there in enumerate(order["copied"])]
        await self._start(node.__name__, work)
        self._send({"do": "open", "work": str(work), **order, "moved": moved})
        return await self._answer("ready")

    async def generate(self, order: Mapping[str, Any]) -> Answer:
        """Starts the program that runs engines for another node. Returns its answer with the order's address and
        secret."""
        work = await self._clear()
        await self._start(generator.__name__, work)
        self._send({"work": str(work), **order})
        return {**await self._answer("ready"), **order}

    async def _clear(self) -> Path:
        """Ends what ran before, and makes a new work folder."""
        await self.close()
        self._heard_s, self._why = time.monotonic(), ""
        remove_stale()
        self._work = Path(tempfile.mkdtemp(prefix=_PREFIX))
        write_atomically(self._work / "owner", name_alive(os.getpid()))  # never there without a name in it
        return self._work

    async def _start(self, module: str, work: Path) -> None:
        with open_private(work / "program.log", "wb") as log:
            self._program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment(),
                start_new_session=True,
                limit=_LINE_MOST,
            )
        self._watch = asyncio.ensure_future(self._hold_lease(self._program))

    async def trial(self, order: Mapping[str, Any]) -> Answer:
        """Runs one trial. The answer holds `parcel`: the trial's directory, packed; `ray_cpu_s`: CPU seconds that this
        actor and Ray's daemon used during `ray_took_s` seconds; `between_s`: the time from the end of the trial before,
        None for the first."""
        before, began = _own_cpu_s(), time.monotonic()
        self._send({"do": "trial", **order})
        answer = await self._answer("ended")
        if "failed" in answer:
            return answer
        path = Path(answer["parcel"])
        used = {name: cpu - before.get(name, 0.0) for name, cpu in _own_cpu_s().items()}
        parcel = path.read_bytes()
        path.unlink()
        took_s = time.monotonic() - began
        return {"parcel": parcel, "ray_cpu_s": used, "ray_took_s": took_s, "between_s": answer["between_s"]}

    async def heard(self) -> str:
        """Notes that the driver is still there. Returns the phase of the trial."""
        self._heard_s = time.monotonic()
        if self._look is None:
            self._look = timer_of_main_thread()
        if self._look is not None:
            put_off(self._look, LOOK_S)
        return self._phase

    async def stop(self) -> None:
        """Asks the program to end its trial as Ctrl-C would; waits for nothing."""
        self._send({"do": "stop"})

    async def close(self) -> None:
        """Ends the program, and removes its work folder. Safe to call twice."""
        program, self._program = self._program, None
        work, self._work = self._work, None
        if self._watch is not None:
            self._watch.cancel()
        if program is not None:
            await _end(program)
        if self._unpacking is not None:
            await asyncio.wait([self._unpacking])
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)

    def _send(self, order: Mapping[str, Any]) -> None:
        if self._program is not None and self._program.stdin is not None:
            with suppress(ConnectionError, RuntimeError):
                self._program.stdin.write(json.dumps(order).encode() + b"\n")

    async def _answer(self, wanted: str) -> Answer:
        """Waits for the answer that ends an order: `wanted`, or `failed`."""
        program = self._program
        self._phase = ""
        while program is not None and program.stdout is not None and (line := await program.stdout.readline()):
            told: Answer = json.loads(line)
            if told["said"] == "phase":
                self._phase = told["name"]
            elif told["said"] == "failed":
                return {"failed": told}
            elif told["said"] == wanted:
                return told
        return {"failed": {"kind": node.LOST, "message": self._why or await self._unexpected_end()}}

    async def _unexpected_end(self) -> str:
        """The message about a program that ended without an answer: its exit status and the end of its log."""
        program, log = self._program, None if self._work is None else self._work / "program.log"
        status = "" if program is None else f" ({await program.wait()})"
        said = log.read_text(errors="replace")[-OPEN_LOG_BYTES:] if log is not None and log.is_file() else ""
        return f"the program on the node stopped unexpectedly{status}{': ' + said.strip() if said else ''}"

    async def _hold_lease(self, program: asyncio.subprocess.Process) -> None:
        """Ends the program once the driver was not heard for `LEASE_S`."""
        while (left_s := self._heard_s + LEASE_S - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        if program.returncode is None:
            self._why = f"the driver was not heard for {LEASE_S:.0f} s, so the node ended the trial"
            await _end(program)


async def _end(program: asyncio.subprocess.Process) -> None:
    """Ends a program by closing its stdin; if it does not end so, kills it, which ends its engines and probe."""
    if program.stdin is not None:
        program.stdin.close()
    try:
        await asyncio.wait_for(program.wait(), node.END_S + 0.5)
    except TimeoutError:
        with suppress(ProcessLookupError):
            program.kill()
        await program.wait()


def environment() -> dict[str, str]:
    """The environment of `ray start`, without Ray's own variables, above all the token. The environment of a Ray worker
    has more, such as `OMP_NUM_THREADS=1`, which would change the measured server."""
    given = dict(os.environ)
    with suppress(OSError):
        if process_stat(os.getppid()).name == "raylet":
            entries = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="surrogateescape")
            given = dict(entry.split("=", 1) for entry in entries.split("\0") if "=" in entry)
    return {name: value for name, value in given.items() if not name.startswith("RAY_")}


def remove_stale() -> None:
    """Removes the work folders of actors that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.getuid() and not is_alive((folder / "owner").read_text()):
                shutil.rmtree(folder, ignore_errors=True)


def _own_cpu_s() -> dict[str, float]:
    """CPU seconds so far of this actor and of its parent, Ray's daemon on the node (raylet)."""
    found = {"actor": time.process_time()}
    with suppress(OSError):
        found["raylet"] = process_stat(os.getppid()).cpu_ticks / TICKS_PER_S
    return found
