"""`powerband resume DIR --cluster ADDRESS`, without Ray: the cluster that is joined, and the runs that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import powerband as pb
from fakes.live_runs import on_nodes
from powerband.base.errors import UsageError
from powerband.cli import invoke
from powerband.cluster import joining


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...], bool]]:
    """The clusters that were asked for, and if they may lack nodes; none of them can be joined."""
    asked: list[tuple[str, tuple[str, ...], bool]] = []

    @contextmanager
    def join(address: str, wanted: Sequence[str], without: Callable[[str], None] | None) -> Iterator[list[Any]]:
        asked.append((address, tuple(wanted), without is not None))
        raise UsageError("nobody is there")
        yield []

    monkeypatch.setattr(joining, "joined", join)
    return asked


def test_it_goes_on_with_the_nodes_of_another_cluster(
    tmp_path: Path, joined: list[tuple[str, tuple[str, ...], bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_nodes(tmp_path / "run", trials=1, nodes=("a", "b"))
    written = run.experiment.read_text()
    assert invoke(["resume", str(run.path), "--no-progress"]) == 2
    assert invoke(["resume", str(run.path), "--no-progress", "--cluster", "other:6379"]) == 2
    assert invoke(["resume", str(run.path), "--no-progress", "--cluster", "auto"]) == 2
    with pytest.raises(UsageError):
        pb.resume(run.path, cluster="third:6379", progress=False)
    assert joined == [("auto", ("a", "b"), True), *((each, (), True) for each in ("other:6379", "auto", "third:6379"))]
    assert capsys.readouterr().err.count("nobody is there") == 3
    assert run.experiment.read_text() == written


@pytest.mark.parametrize(
    ("cluster", "address", "said"),
    [
        (True, "none", "goes on on one. `ray start --head` makes one of this machine alone"),
        (True, "two words", "write auto, or the host and port"),
        (True, "", "write auto, or the host and port"),
        (False, "auto", "was begun on one machine, and goes on there"),
    ],
)
def test_who_cannot_is_told_why(
    cluster: bool, address: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_nodes(tmp_path / "run", trials=0, cluster=cluster)
    assert invoke(["resume", str(run.path), "--no-progress", "--cluster", address]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
