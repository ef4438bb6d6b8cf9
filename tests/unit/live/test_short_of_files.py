"""While no more files can be opened a run is unknown, and never looks ended; it is read once they can be opened."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fakes.asgi import asked
from fakes.live_runs import recorded, written
from powerband.live.follow import RunFollower
from powerband.live.growing_files import is_held
from powerband.live.guard import access_for
from powerband.live.server import LivePages
from powerband.live.state import RunStatus


@contextmanager
def no_descriptors() -> Iterator[None]:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("os.open", "builtins.open", "os.scandir"):
            patch.setattr(name, refused)
        yield


def test_a_run_is_unknown_and_then_what_it_was(tmp_path: Path) -> None:
    run = recorded(tmp_path, "20261120-100000-quickstart")
    for before in (0, 1, 5):  # nothing, a part or all of the run was read before
        follower = RunFollower(run.path)
        for _ in range(before):
            follower.poll()
        with no_descriptors():
            unknown = follower.poll()
        assert unknown.status is RunStatus.UNKNOWN and "ulimit -n" in unknown.because
        state = follower.poll()
        while follower.more:
            state = follower.poll()
        assert state.status is RunStatus.FINISHED and state.valid == state.done > 0 and not state.because
        assert not any("cannot be read" in text for text in state.warnings)


def test_a_lock_that_cannot_be_seen_is_not_taken_for_free(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            is_held(tmp_path / ".lock")


@pytest.mark.parametrize("target", ["/", "/metrics", "/runs/20261120-100000-pool-size/", "/compare?a=x&b=y"])
def test_a_folder_that_cannot_be_listed_is_not_empty(tmp_path: Path, target: str) -> None:
    written(tmp_path, "20261120-100000-pool-size")
    pages = LivePages(tmp_path, access_for("127.0.0.1", 8420, None, "machine"))
    real = asked(pages.app, target).status
    with no_descriptors():
        answer = asked(pages.app, target)
    assert real != 503 and answer.status == 503 and "ulimit -n" in answer.text
