"""Remembers the noise of this machine between runs: how much equal trials differ, as `powerband doctor` measured it.

It is kept in a small file under $XDG_CACHE_HOME/powerband, one for each machine. The file may be deleted at any time:
then a usual noise is assumed, and reported as an assumption."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from powerband.base.errors import MeasurementError, UserInterruptError

ASSUMED_SD = 0.02  # arbitrary, used until `doctor --pilot` has measured it; half of it would promise too much
LOOK_S = 0.1  # arbitrary: the pause between two looks whether another process still fills the cache
LOOKS_WITHOUT_NOTE = 20  # arbitrary: a wait of two seconds looks like a hang


@dataclass(frozen=True)
class Noise:
    """The noise of a machine. `sd`: standard deviation of the log of a result between equal trials (0.02: about 2 %).
    `measured_on`: the day, as 2026-11-21; None if it is assumed, and was not measured on this machine."""

    sd: float
    measured_on: str | None = None

    def __str__(self) -> str:
        """`equal trials differ by 2.0 % (measured here on 2026-11-21)`."""
        source = (
            f"measured here on {self.measured_on}"
            if self.measured_on
            else "assumed; `powerband doctor --pilot` measures it"
        )
        return f"equal trials differ by {100 * self.sd:.1f} % ({source})"


def known_noise() -> Noise:
    """The noise remembered for this machine, or an assumed one."""
    try:
        found = json.loads(_file().read_text())
        sd, day = float(found["sd"]), str(found["measured_on"])
    except (OSError, ValueError, KeyError, TypeError, MeasurementError):
        return Noise(ASSUMED_SD)
    return Noise(sd, day) if math.isfinite(sd) and sd > 0 else Noise(ASSUMED_SD)


def remember_noise(sd: float) -> bool:
    """Keeps the noise for later runs; returns False if that failed."""
    text = json.dumps({"sd": sd, "measured_on": time.strftime("%Y-%m-%d")})
    try:
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(text)
        partial.replace(file)
    except (OSError, MeasurementError):
        return False
    return True


def cache_folder() -> Path:
    """The folder for files that may be deleted at any time; it need not exist. If there is no home, it lies in the
    shared temporary folder: then MeasurementError is raised if somebody else made it or may write there, since programs
    from it are executed."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The standard requires relative paths to be ignored.
    if home.startswith("/"):
        return Path(home) / "powerband"
    try:
        return Path.home() / ".cache" / "powerband"
    except RuntimeError:  # no HOME, and no entry for this user: containers
        folder = Path(tempfile.gettempdir()) / f"powerband-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise MeasurementError(
            f"{folder} is not a folder that only you can write, so what lies there is not trusted: set HOME or "
            "XDG_CACHE_HOME to a folder of your own"
        )
    return folder


@contextmanager
def alone_in_cache(
    path: Path,
    kept: str,
    stopped: Callable[[], bool | None] = lambda: None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Keeps other processes from filling `path`, in the cache folder, while the block lasts. `kept`: as for
    `writing_cache`; `stopped`: returns True, or raises, if the user asked to stop, which ends the wait for another
    process; `note`: called once, with a sentence, if the wait is long. Raises MeasurementError if it cannot be written,
    UserInterruptError."""
    with writing_cache(path, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f"{path.name}.lock").open("w")
    with lock:
        looks = 0
        while not _locked(lock, path, kept):
            if stopped():
                raise UserInterruptError(f"stopped while another powerband fills {path}")
            if looks == LOOKS_WITHOUT_NOTE:
                note(f"another powerband fills {path}, and this one waits for it")
            looks += 1
            time.sleep(LOOK_S)
        yield


@contextmanager
def writing_cache(path: Path, kept: str) -> Iterator[None]:
    """Turns an OSError of the block, which writes at `path`, into a MeasurementError. `kept`: a clause that says what
    is kept there."""
    try:
        yield
    except OSError as error:
        raise MeasurementError(
            f"cannot write {error.filename or path}: {error.strerror or error}: {kept}; set XDG_CACHE_HOME to a folder "
            "that can be written"
        ) from error


def _locked(lock: IO[str], path: Path, kept: str) -> bool:
    """True once the lock is held; False while another process holds it."""
    with writing_cache(path, kept):
        return take_lock(lock)


def take_lock(file: IO[str] | int) -> bool:
    """Locks an open file or folder for this process alone, until it is closed: True once it has the lock, False while
    another process has. Raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _file() -> Path:
    return cache_folder() / f"noise-{_machine()}.json"


def _machine() -> str:
    """The machine's id, or its name if it has none (often in containers)."""
    try:
        found = Path("/etc/machine-id").read_text().strip()
    except OSError:
        found = ""
    return re.sub(r"[^A-Za-z0-9.-]", "_", found or socket.gethostname())
