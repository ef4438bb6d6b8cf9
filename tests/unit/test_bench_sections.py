"""The sections of `make bench` with fake measurements: each repeats its measurement as often as `--pairs` says and
gives the median, never the best; a footer says when, where and of which commit. Nothing is started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import __main__ as bench
from benchmarks import (
    analysis,
    answer,
    bench_share,
    calibration,
    control_plane,
    footer,
    http,
    jmeter_pairs,
    kept_lines,
    link,
    live,
    probe,
    race,
    statsd,
    switches,
    watching,
    websocket,
)
from benchmarks.pairs import MET, NOT_MET, UNDECIDED, Usage

from powerband.files.experiment_file import parse_experiment

VERDICTS = {MET, NOT_MET, UNDECIDED}


class Measured:
    """Stands in for the measurement of a section: call number n returns `made(n)`."""

    def __init__(self, made: Callable[[float], object]) -> None:
        self.made, self.calls = made, 0

    def __call__(self, *_: object, **__: object) -> Any:
        self.calls += 1
        return self.made(float(self.calls))


def held(value: object) -> Callable[..., AbstractContextManager[object]]:
    return lambda *_, **__: nullcontext(value)


def used(cpu_s: float) -> Usage:
    return Usage(cpu_s=cpu_s / 100, wall_s=10.0, stdout="", peak_bytes=int(cpu_s * 1e6))


def waited(lost: float) -> dict[str, float]:
    names = ("not joined", "dropped", "messages lost", "answered", "engine", "server", "kernel, both ends")
    return dict.fromkeys(names, lost - 1)


def crowd_of(joined: float) -> websocket.Crowd:
    return websocket.Crowd(int(joined), Counter(timeout=1), 0.1, 40.0, 7_000.0, 1.0)


def swept(seconds: float) -> SimpleNamespace:
    answer = SimpleNamespace(setting="a", equivalent=("a",), sentences=("Not enough data.",))
    return SimpleNamespace(
        seconds=seconds, invalid=0, answer="best: a", analysis=SimpleNamespace(trials=(), answer=answer)
    )


def taken(updates: float) -> statsd.Taken:
    return statsd.Taken(sent=100, read=100, dropped=0, updates=int(updates * 1e6), cpu_s=1.0, wall_s=1.0)


def linked(late_us: float) -> link.Found:
    return link.Found((1.0, 2.0, 3.0), 90.0, (1.0, late_us), 5.0, 0)


def shared(pairs: int) -> SimpleNamespace:
    """The result of a run of the section `bench-share` with so many starts."""
    names = ("threads_started_per_s", "threads_max", "bench_cpu_cores")
    trials = [SimpleNamespace(metrics=dict.fromkeys(names, 0.01 * at)) for at in range(1, pairs + 1)]
    return SimpleNamespace(analysis=SimpleNamespace(trials=trials))


SECTIONS = {
    "memory": (http, {"reference": held((1, 2)), "_peak_bytes": Measured(lambda at: int(at * 2**20))}, 2),
    "switches": (switches, {"switch_us": Measured(lambda us: us)}, 2),
    "websocket-memory": (
        websocket,
        {
            "reference": held((1, 2)),
            "_paced": Measured(lambda mb: {"max_rss_bytes": mb, "websocket": {"joined": 10_000}}),
        },
        2,
    ),
    "websocket-waiting": (websocket, {"_waiting": Measured(waited)}, 1),
    "websocket-crowd": (
        websocket,
        {"_published_crowds": lambda: [("workers=3", crowd_of(42_000))], "_reference_crowd": Measured(crowd_of)},
        1,
    ),
    "watching": (watching, {"_of_a_jvm": Measured(lambda at: (1e6, 0.98 + at / 1000))}, len(watching.SETTINGS)),
    "link": (link, {"measured": Measured(linked)}, 2 * len(link.LINKS)),
    "control-plane": (control_plane, {"_of_a_run": Measured(lambda at: (at, at, at))}, 1),
    "live": (
        live,
        {
            "_run": held(Path("no run")),
            "_server": held(("http://127.0.0.1:1/", 1)),
            "_cpu_s": lambda pid: 1.0,
            "_first_state": lambda address, pid: 1.0,
            "_watched": Measured(lambda at: (at / 10, 1000.0)),
            "large_run": lambda *_: SimpleNamespace(path=Path("no run")),
            "openings_s": lambda address, openings: [(0.1 + at, 0.2 + at) for at in range(openings)],
        },
        len(live.CASES),
    ),
    "answer": (
        answer,
        {
            "rows": lambda folder: iter([answer.Row("x", ("tune",), ("a",), 0.05, 45.0)]),
            "answered": Measured(lambda at: answer.Answered(at, 3, "a", 0.0)),
        },
        1,
    ),
    "race": (race, {"sweep": Measured(swept)}, 2),
    "statsd": (statsd, {"_ours": Measured(taken), "which": lambda *_: None}, 4),
    "probe": (probe, {"reference": held((1, 2)), "run": Measured(used)}, 1),
    "analysis": (
        analysis,
        {
            "large_run": lambda *_: SimpleNamespace(path=Path("x"), trials=Path("x"), report=Path(__file__)),
            "run": Measured(used),
            "openings_s": lambda address, openings: [(1.0, 2.0)] * openings,
        },
        2,
    ),
}


def table_lines(text: str) -> list[str]:
    """The lines of all tables without their heads."""
    lines = text.split("\n")
    heads = {at + below for at, line in enumerate(lines) if line.startswith("|---") for below in (-1, 0)}
    return [line for at, line in enumerate(lines) if line.startswith("|") and at not in heads]


@pytest.mark.parametrize("pairs", [1, 7])
@pytest.mark.parametrize("name", SECTIONS)
def test_each_section_repeats_as_often_as_it_is_told(
    name: str, pairs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, fakes, each = SECTIONS[name]
    (measured,) = [fake for fake in fakes.values() if isinstance(fake, Measured)]
    monkeypatch.setattr(measured, "calls", 0)
    for attribute, fake in fakes.items():
        monkeypatch.setattr(module, attribute, fake)
    lines = list(bench.SECTIONS[name].measured("engine", pairs))
    facts = {"date": "", "machine": "", "commit": "", "command": "", "of": "", "steal": 0.0}
    found = kept_lines.Kept(section=name, repeats=pairs, lines=tuple(lines), **facts)
    assert kept_lines.read(kept_lines.write(found, tmp_path)) == found, "each line is made again from what is kept"
    assert found.rows and table_lines("\n".join(lines)) == found.rows, "each line of a table is of what is kept"
    assert measured.calls == each * pairs + (name == "probe"), "the probe's server is loaded once before"
    cells = {cell.strip() for line in lines for cell in line.split("|")}
    assert cells & VERDICTS or name == "switches", lines
    assert bool(re.search(r"\(\S+(–| to )\S+\)", " ".join(lines))) == (pairs > 1), (
        "ends are shown where there is more than one repeat"
    )


def test_the_share_of_the_bench_is_of_as_many_starts_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(bench_share, "sweep", lambda text, *_, **__: asked.append(text) or shared(2))
    lines = list(bench_share.cost("engine", 3))
    assert parse_experiment(asked[0], "bench-share").measure.repeats == 3
    assert lines[0] == "1 of 3 starts told of nothing"
    assert lines[-1] == "| control plane and probes | 1.50 (1.00–2.00) % of one core | at most 3 % of one core | met |"


def test_an_answer_counts_where_it_is_right_and_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([("a", 0.0), ("b", 0.0), ("a", 0.06), ("none", None)])
    monkeypatch.setattr(answer, "rows", lambda folder: iter([answer.Row("x", ("tune",), ("a",), 0.05, 45.0)]))
    monkeypatch.setattr(answer, "answered", lambda *_, **__: answer.Answered(9.0, 3, *next(found)))
    lines = list(answer.seconds("engine", 4))
    assert lines[-1] == "| x | 9 (9–9) | 3 (3–3) | 3 of 4 | 45 s | NOT met |"


def test_a_race_that_names_nothing_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object, **__: object) -> SimpleNamespace:
        made = swept(1.0)
        made.analysis.answer.setting = None
        return made

    monkeypatch.setattr(race, "sweep", nothing)
    lines = list(race.against_grid("engine", 2))
    assert lines[-1] == "\n0 of 2 pairs count: both named a setting; the same one in 0\n"


def test_a_section_tells_the_median_and_not_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "_of_a_run", Measured(lambda at: (at, at, at)))
    text = "\n".join(control_plane.cost("engine", 9))
    assert "| control plane while trials measure | 5.00 (2.00–8.00) % of one core | at most 2 % of one core |" in text
    monkeypatch.setattr(analysis, "run", Measured(lambda at: Usage(at, at, "")))
    monkeypatch.setattr(analysis, "openings_s", lambda *_: [])
    monkeypatch.setattr(analysis, "large_run", SECTIONS["analysis"][1]["large_run"])
    text = "\n".join(analysis.speed("engine", 3))
    assert "| analysis | 2.00 (1.00–3.00) s | at most 5 s | met |" in text
    assert "skipped: no Chromium" in text


def test_a_start_of_a_crowd_that_lost_users_is_no_success() -> None:
    assert websocket.crowd_row("x", "1/s", [crowd_of(42_000)]).endswith("| met |")
    assert websocket.crowd_row("x", "1/s", [crowd_of(42_000), crowd_of(41_000)]).endswith("| undecided |")
    assert "| 2 timeout |" in websocket.crowd_row("x", "1/s", [crowd_of(40_000), crowd_of(41_000)])
    assert websocket.crowd_row("x", "1/s", [crowd_of(40_000), crowd_of(41_000)]).endswith("| NOT met |")


def test_packets_that_nobody_accounts_for_are_an_error() -> None:
    lost = statsd.Taken(sent=100, read=90, dropped=9, updates=1, cpu_s=1.0, wall_s=1.0)
    with pytest.raises(RuntimeError, match="100 sent, but 90 read and 9 dropped"):
        statsd.sink_row("powerband", "UDP", [taken(1), lost], promised=True)


def test_a_footer_says_when_where_how_and_of_what(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def measured(engine: str, pairs: int) -> Iterator[str]:
        yield f"{engine} {pairs}"

    monkeypatch.setitem(bench.SECTIONS, "probe", bench.Section(measured, "fresh probes"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--engine", "e", "--only", "probe", "--pairs", "3"])
    assert bench.main() == 0
    said = capsys.readouterr().out
    assert "## probe\n\ne 3\n" in said
    assert re.search(
        r"^\*\d{4}-\d\d-\d\d; .+, \d+ CPUs, Linux \S+; `python -m benchmarks --only probe --pairs 3`; "
        r"commit (?:[0-9a-f]{7,}\+?|unknown); repeats: 3, fresh probes; steal \d+\.\d% of the CPUs' time\*$",
        said,
        re.M,
    )


@pytest.mark.parametrize("pairs", ["0", "-1"])
def test_no_repeats_are_a_mistake(pairs: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--engine", "e", "--pairs", pairs])
    with pytest.raises(SystemExit):
        bench.main()
    assert "--pairs: at least 1" in capsys.readouterr().err


def test_a_commit_is_marked_where_files_were_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    assert footer.commit(tmp_path / "none") == "unknown"
    git("init")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    (tmp_path / "new").write_text("not known to git")
    assert re.fullmatch(r"[0-9a-f]{7,}", footer.commit(tmp_path))
    (tmp_path / "file").write_text("2")
    assert re.fullmatch(r"[0-9a-f]{7,}\+", footer.commit(tmp_path))


def test_steal_is_the_share_of_all_time_in_between() -> None:
    before = {"busy": 100.0, "idle": 50.0, "steal": 10.0}
    assert footer.stolen(before, {"busy": 160.0, "idle": 80.0, "steal": 20.0}) == pytest.approx(0.1)
    assert footer.stolen(before, before) == 0.0


def test_the_lines_beside_jmeter_are_made_of_every_pair(tmp_path: Path) -> None:
    names = ("goodput_per_s", *jmeter_pairs.CPU, *jmeter_pairs.TIMES)
    trials = {
        "engine": [SimpleNamespace(metrics=dict.fromkeys(names, 20e6 + at)) for at in range(6)],
        "JMeter": [SimpleNamespace(metrics=dict.fromkeys(names, 20.4e6 + at)) for at in range(6)],
    }
    lines = tuple(jmeter_pairs._table(trials))
    assert "| mean ms | 20.00 | 20.40 | +0.40 (+0.40 to +0.40) | 1.60 | met |" in lines
    assert "| goodput per s | 20000002.5 | 20400002.5 | +2.00% (+2.00% to +2.00%) | 3% | met |" in lines
    assert lines[-1] == "| CPU, us a request | 20000.0 | 20400.0 | 1.0 (1.0–1.0) times | | |"
    found = kept_lines.Kept("jmeter", "", "", "", "", 6, "", 0.0, lines)
    assert kept_lines.read(kept_lines.write(found, tmp_path)) == found
    assert table_lines("\n".join(lines)) == found.rows


def test_a_check_of_the_calibration_has_the_verdict_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = calibration.CalibrationCheck(
        name="M/D/1 at 60 %", quantity="mean response time", unit="ns", expected=17.9e6, measured=17.7e6,
        deviation=-0.011, low=-0.031, high=0.009, allowed=0.05, trials=8, requests=900,
    )  # fmt: skip
    told = [check, replace(check, problem="too wide"), replace(check, measured=None, deviation=None, problem="none")]
    document = json.dumps({"checks": [asdict(each) for each in told]})
    monkeypatch.setattr(calibration, "powerband", lambda *_, engine: document)
    lines = tuple(calibration.checks("engine", 1))
    assert [line.rsplit("|", 2)[1].strip() for line in lines[2:]] == [MET, UNDECIDED, NOT_MET]
    assert "| -1.1 % (-3.1 to +0.9) | 5 % | met |" in lines[2]
    found = kept_lines.Kept("calibration", "", "", "", "", 1, "", 0.0, lines)
    assert kept_lines.read(kept_lines.write(found, tmp_path)) == found
