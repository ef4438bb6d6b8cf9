"""Powerband runs on Ray, on hosts that are network namespaces of this machine: answers, faults, and processes left
behind.

The tests assert where trials ran, that they are complete, and how soon a program ends that nobody talks to."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest

from fakes.guides import block_of, shown
from fakes.hosts import Host, Hosts, hosts
from fakes.kills import named_namespaces
from fakes.needs import need_hosts, without
from fakes.tmpfs import tmpfs
from powerband.analyze.stored import stored_analysis
from powerband.files.experiment_file import load_experiment
from powerband.model.plan import Stage
from powerband.model.results import Analysis, AnswerKind, Verdict
from powerband.search.session import analyse_run
from powerband.store import RunDir

# The tests run alone: Ray has three daemons, and a node that is silent for seconds is lost.
pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine")]

ENDED_S = 5.0
LOOK_MOST_S = 0.5  # from one look to the next, unless the machine stands still
# The server mostly waits, so that several run beside each other.
EXPERIMENT = """
name: pool
subject: {use: reference, set: {wait: 20ms}}
factors: {threads: [2, 4, 8]}
load: {users: 8, duration: %s}
measure: {warmup: 100ms, repeats: %d, retries: 0}
design: {order: %s, seed: 3, confirm: 3}
"""
CAPACITY = """
name: pool
subject: {use: reference, set: {wait: 20ms}}
factors: {threads: [1, 4]}
load: {users: 8, duration: 500ms}
measure: {warmup: 100ms, repeats: 1, retries: 1, foreign_cpu_max: 100%, steal_max: 100%}
objective: {metric: capacity, subject_to: ["p90 < 300ms", "errors < 1%"]}
design: {seed: 3}
"""
EXPLORED = """
name: pool
subject: {use: reference, set: {wait: 20ms}}
factors: {threads: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}
load: {users: 8, duration: 500ms}
measure: {warmup: 100ms, repeats: 2, retries: 1, foreign_cpu_max: 100%, steal_max: 100%}
design: {order: race, seed: 3, explore_above: 10, explore_trials: 10, finalists: 3, confirm: 1}
"""
SLOW = """
name: pool
subject:
  name: waits
  command: [sh, -c, 'exec "$0" serve --port "$1" --threads "$2" --wait "$WAITS"', "{engine}", "{port}", "{threads}"]
factors: {threads: [2, 4, 8]}
load: {users: 8, duration: 500ms}
measure: {warmup: 100ms, repeats: 6, retries: 0}
design: {order: blocks, seed: 3}
"""


@pytest.fixture
def apart() -> Iterator[Hosts]:
    """Three hosts on which Ray does not run yet."""
    need_hosts()
    with hosts(3) as made:
        yield made


@pytest.fixture
def cluster(apart: Hosts) -> Hosts:
    apart.start_ray()
    return apart


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts with Ray, for the tests that only measure on them."""
    need_hosts()
    with hosts(3) as made:
        made.env["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
        made.start_ray()
        yield made


def file_of(folder: Path, *, duration: str = "500ms", repeats: int = 3, order: str = "blocks") -> Path:
    file = folder / "pool.yaml"
    file.write_text(EXPERIMENT % (duration, repeats, order))
    return file


def only_run(folder: Path) -> RunDir:
    (path,) = (folder / "runs").iterdir()
    return RunDir.open(path)


def analysis_of(run: RunDir) -> Analysis:
    return stored_analysis(run.analysis.read_text())


def check_whole(run: RunDir, repeats: int) -> Analysis:
    analysis = analysis_of(run)
    nodes, measured = defaultdict(set), defaultdict(set)
    for trial in analysis.trials:
        nodes[trial.block].add(trial.node)
        if trial.status == "measured":
            measured[trial.block].add(trial.setting.id)
    assert all(len(each) == 1 for each in nodes.values()), "a block stays on its node"
    assert sum(len(settings) == 3 for settings in measured.values()) >= repeats
    assert analyse_run(load_experiment(run.experiment), run).trials == analysis.trials
    return analysis


def ours(host: Host) -> dict[int, str]:
    """The programs of trials on a host, by pid."""
    words = ("powerband-engine", "powerband.cluster.node", "powerband.cluster.generator")
    return {pid: line for pid, line in host.commands().items() if any(word in line for word in words)}


def wait_for(what: object, timeout_s: float) -> float:
    """Waits until `what()` is true, and returns the seconds that this took, without those in which the machine stood
    still."""
    began = looked = time.monotonic()
    took_s = 0.0
    while not what():  # type: ignore[operator]
        assert looked - began < timeout_s, "in vain"
        time.sleep(0.1)
        before, looked = looked, time.monotonic()
        took_s += min(looked - before, LOOK_MOST_S)
    return took_s


def check_nothing_left(cluster: Hosts) -> None:
    for host in cluster.hosts:
        assert not ours(host)
        folders = Path(host.env["TMPDIR"]).glob("powerband-node-*")
        assert not [folder for folder in folders if (folder / "owner").exists()]


def check_nothing_left_by_the_next_run(cluster: Hosts, folder: Path) -> None:
    """Checks that the next run on all hosts removes what is left: Ray kills the programs of an actor that it ends,
    which leave their folders."""
    again = ("run", str(file_of(folder)), "--cluster", cluster.address, "--runs", str(folder / "again"))
    assert cluster.powerband(*again).returncode in (0, 5)
    (run,) = (folder / "again").iterdir()
    took_part = json.loads(RunDir.open(run).nodes.read_text())["nodes"]
    assert set(took_part) == {host.address for host in cluster.hosts}, "a folder goes with the next run on its host"
    check_nothing_left(cluster)


def start_run(cluster: Hosts, folder: Path, *, repeats: int = 3) -> subprocess.Popen[bytes]:
    """Starts a run of long trials, and waits until its servers run on every host."""
    file = file_of(folder, duration="3s", repeats=repeats)
    arguments = ("run", str(file), "--cluster", cluster.address, "--runs", str(folder / "runs"))
    process = cluster.start_powerband(*arguments, log=folder / "log")
    wait_for(lambda: all(any(" serve " in line for line in ours(host).values()) for host in cluster.hosts), 60)
    return process


def check_the_block_is_lost(process: subprocess.Popen[bytes], victim: Host, folder: Path) -> None:
    """Checks that no program of the run stays on the victim, and that its trials run on another host."""
    assert wait_for(lambda: not ours(victim), 20) < ENDED_S
    assert process.wait(120) in (0, 5), (folder / "log").read_text()
    analysis = check_whole(only_run(folder), 3)
    assert {trial.node for trial in analysis.trials if trial.lost} == {victim.address}


def test_the_best_pool_is_best_on_all_three_hosts(cluster: Hosts, tmp_path: Path) -> None:
    file = file_of(tmp_path, order="race", repeats=4)
    done = cluster.powerband("run", str(file), "--cluster", cluster.address, "--runs", str(tmp_path / "runs"))
    assert done.returncode in (0, 5), done.stderr  # 5: other programs delayed the trials
    run = only_run(tmp_path)
    analysis = check_whole(run, 1)
    assert {trial.node for trial in analysis.trials} == {host.address for host in cluster.hosts}
    told = json.loads(run.nodes.read_text())
    assert set(told["nodes"]) == {host.address for host in cluster.hosts}
    assert analysis.nodes is not None and len(analysis.nodes.rows) == 3
    assert all(row.between_s for row in analysis.nodes.rows), "each host ran several trials"
    served = defaultdict(list)
    for trial in analysis.trials:  # what other programs delayed is late for all
        if "goodput_per_s" in trial.metrics:
            served[trial.setting.id].append(trial.metrics["goodput_per_s"])
    assert max(served, key=lambda setting: fmean(served[setting])) == "threads=8"
    # What other programs delayed may be too little for a name.
    assert analysis.answer.kind not in (AnswerKind.EQUIVALENT_SET, AnswerKind.NONE_FEASIBLE)
    if analysis.answer.kind is AnswerKind.BEST:
        assert "threads=8 is best" in done.stdout
    check_nothing_left(cluster)


def analysed(cluster: Hosts, text: str, folder: Path) -> Analysis:
    """Runs an experiment on all hosts. Checks that its records give the same analysis again, and that nothing is
    left."""
    file = folder / "experiment.yaml"
    file.write_text(text)
    done = cluster.powerband("run", str(file), "--cluster", cluster.address, "--runs", str(folder / "runs"))
    assert done.returncode in (0, 5), done.stderr
    run = only_run(folder)
    analysis = analysis_of(run)
    again = analyse_run(load_experiment(run.experiment), run)
    assert (again.trials, again.answer) == (analysis.trials, analysis.answer)
    check_nothing_left(cluster)
    return analysis


@pytest.mark.long
def test_capacities_are_searched_on_all_three_hosts_side_by_side(shared: Hosts, tmp_path: Path) -> None:
    """Pools of 1 and 4 threads that take 20 ms a request serve 50/s and 200/s."""
    analysis = analysed(shared, CAPACITY, tmp_path)
    names = {host.address for host in shared.hosts}
    nodes = defaultdict(set)
    for trial in analysis.trials:
        nodes[trial.block].add(trial.node)
    assert all(len(each) == 1 for each in nodes.values()), "a round stays on its node"
    looks = {trial.node for trial in analysis.trials if trial.stage is Stage.SATURATE}
    searched = {trial.node for trial in analysis.trials if trial.stage is Stage.CAPACITY}
    assert looks == searched == names
    assert analysis.nodes is not None and {row.node for row in analysis.nodes.rows if row.ratio} == names
    found = {row.setting.id: row.capacity.estimate for row in analysis.settings if row.capacity is not None}
    small, large = found["threads=1"], found["threads=4"]
    assert small is not None and large is not None and large.value > 2 * small.value


@pytest.mark.long
def test_a_large_space_is_explored_on_all_three_hosts_side_by_side(shared: Hosts, tmp_path: Path) -> None:
    """Pools of 8 threads and more serve 400/s, smaller ones less."""
    analysis = analysed(shared, EXPLORED, tmp_path)
    explored = [trial for trial in analysis.trials if trial.stage is Stage.EXPLORE]
    assert len({trial.setting for trial in explored}) == 10
    names = {host.address for host in shared.hosts}
    on = defaultdict(set)
    for trial in explored:
        on[trial.setting].add(trial.node)
    if all(trial.valid for trial in explored):
        assert sorted(map(len, on.values())) == [1] * 9 + [3], "each host measures the common setting"
    assert {trial.node for trial in explored} == names
    assert {trial.node for trial in explored[:3]} == names, "at once"
    assert analysis.settings and all(int(str(row.setting.as_dict()["threads"])) >= 5 for row in analysis.settings)


@pytest.mark.long
def test_the_quickstart_answers_and_reports_on_three_hosts(tmp_path: Path) -> None:
    """`make cluster-demo`."""
    need_hosts()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-m", "fakes.hosts"],
        cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=300)
    assert process.returncode in (0, 5), err
    assert not [name for name in named_namespaces() if name.startswith(f"pb{process.pid}n")]
    run = only_run(tmp_path)
    analysis = check_whole(run, 1)
    nodes = {trial.node for trial in analysis.trials}
    assert len(nodes) == 3 and analysis.nodes is not None and {row.node for row in analysis.nodes.rows} == nodes
    leader = analysis.answer.setting or analysis.answer.leader
    assert leader is not None or process.returncode == 5, "other programs delayed each trial"
    report = run.report.read_text()
    assert leader is None or (leader.id in out and leader.id in report)
    assert 'id="nodes"' in report and all(node in report for node in nodes)


@pytest.mark.long
def test_two_machines_take_the_five_commands_of_the_page(apart: Hosts, tmp_path: Path) -> None:
    """docs/cluster.md, but for the installation; the last command is shorter, and nothing of Ray's is told home."""
    lines = block_of("cluster.md", "ray start --head").splitlines()
    install, token, head, other, run = (line.partition(" #")[0].strip() for line in lines)
    assert install == "pip install 'WHEEL[ray]'"
    first, second = apart.hosts[:2]
    own = str(Path(sys.executable).parent)

    def typed(host: Host, command: str) -> None:
        env = {"HOME": str(host.folder), "PATH": f"{own}:{os.environ['PATH']}", "RAY_USAGE_STATS_ENABLED": "0"}
        done = host.run(["bash", "-ec", command], {**env, **host.env}, 120)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    typed(first, token)
    (second.folder / ".ray").mkdir()
    shutil.copy(first.folder / ".ray" / "auth_token", second.folder / ".ray" / "auth_token")
    typed(first, head)
    typed(second, other.replace("FIRST", first.address))
    keys = ("factors.threads=[2, 4]", "load.users=8", "load.duration=500ms", "measure.warmup=200ms", "claims=[]")
    options = [word for key in (*keys, "measure.repeats=4", "measure.retries=0") for word in ("--set", key)]
    typed(first, f"{run} --runs {tmp_path}/runs {shlex.join(options)}")
    trials = analysis_of(only_run(tmp_path)).trials
    assert {trial.status for trial in trials} == {"measured"}
    assert {trial.node for trial in trials} == {first.address, second.address}
    check_nothing_left(apart)


def wakes(host: Host) -> int:
    """How often the main thread of the actor on a host has waited so far."""
    (pid,) = (pid for pid, line in host.commands().items() if line.startswith("ray::NodeActor"))
    (count,) = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(count)


@pytest.mark.table
def test_an_actor_rests_and_once_it_is_killed_its_block_is_lost_and_nothing_left(
    cluster: Hosts, tmp_path: Path
) -> None:
    process = start_run(cluster, tmp_path)
    victim = cluster.hosts[1]
    before = wakes(victim)
    time.sleep(1)
    assert wakes(victim) - before < 50, "Ray looks for signals a hundred times a second"
    assert victim.kill("ray::NodeActor")
    check_the_block_is_lost(process, victim, tmp_path)
    check_nothing_left(cluster)


@pytest.mark.table
def test_an_engine_and_a_probe_that_are_killed_cost_their_trials_and_no_host(shared: Hosts, tmp_path: Path) -> None:
    process = start_run(shared, tmp_path)
    for host, words in zip(shared.hosts[1:], ("powerband-engine load", "powerband-engine probe"), strict=True):
        wait_for(partial(host.kill, words), 10)
    assert process.wait(120) in (0, 5), (tmp_path / "log").read_text()
    run = only_run(tmp_path)
    analysis = check_whole(run, 1)
    failed = {record.node: record.failure.code for record in run.records() if record.failure is not None}
    assert failed == {shared.hosts[1].address: "engine_failed", shared.hosts[2].address: "probe_failed"}
    assert sum(trial.status == "measured" for trial in analysis.trials) == len(analysis.trials) - 2
    check_nothing_left(shared)


@pytest.mark.table
def test_when_the_head_dies_all_ends_and_the_run_goes_on_on_another_cluster_of_new_hosts(
    apart: Hosts, tmp_path: Path
) -> None:
    """The driver runs on another host. Ray's programs end a minute later, and the driver's process once did so, too."""
    head, beside, new = apart.hosts
    first, second = Hosts([head, beside], apart.folder), Hosts([new], apart.folder)
    first.start_ray()
    file = file_of(tmp_path, duration="3s", repeats=8)
    arguments = ("run", str(file), "--cluster", first.address, "--runs", str(tmp_path / "runs"))
    process = beside.start([sys.executable, "-m", "powerband", *arguments], first.env, tmp_path / "log")
    wait_for(lambda: len(list(tmp_path.glob("runs/*/trials/[0-9]*/record.json"))) >= 2, 60)
    head.kill()
    wait_for(lambda: not any("raylet" in line for line in beside.commands().values()), 120)
    assert wait_for(lambda: not ours(beside), 20) < ENDED_S
    assert process.wait(60) == 5
    run = only_run(tmp_path)
    assert f"`powerband resume {run.path}` goes on" in (tmp_path / "log").read_text()
    kept = {record.spec.number: record for record in run.records() if record.status == "measured"}
    assert len(kept) >= 2
    beside.kill()
    second.start_ray()
    done = second.powerband("resume", str(run.path), "--cluster", second.address)
    assert done.returncode in (0, 5), done.stderr
    analysis = check_whole(run, 8)
    after = {record.spec.number: record for record in run.records()}
    assert {number: after[number] for number in kept} == kept
    later = {each.node for each in after.values() if each.status == "measured" and each.spec.number not in kept}
    assert len(later) == 1 and not later & {head.address, beside.address}
    assert {trial.node for trial in analysis.trials if trial.lost} <= {head.address, beside.address}
    check_nothing_left(second)


@pytest.mark.table
def test_a_host_that_dies_loses_its_block_which_runs_elsewhere(cluster: Hosts, tmp_path: Path) -> None:
    process = start_run(cluster, tmp_path)
    victim = cluster.hosts[2]
    assert victim.kill("raylet")
    check_the_block_is_lost(process, victim, tmp_path)
    victim.kill()
    cluster.start_ray_on(victim)
    # The next run on the host removes what a dead host left in its temporary folder.
    check_nothing_left_by_the_next_run(cluster, tmp_path)


@pytest.mark.table
def test_when_the_driver_is_killed_all_ends_and_the_run_goes_on_with_other_hosts(
    cluster: Hosts, tmp_path: Path
) -> None:
    process = start_run(cluster, tmp_path)
    pids = [pid for pid, line in cluster.hosts[0].commands().items() if "-m powerband run" in line]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.wait(10)
    assert wait_for(lambda: not any(ours(host) for host in cluster.hosts), 20) < ENDED_S
    run = only_run(tmp_path)
    gone = cluster.hosts[2]
    gone.kill()
    time.sleep(7)  # until Ray notices
    done = cluster.powerband("resume", str(run.path), "--cluster", cluster.address)
    assert done.returncode in (0, 5), done.stderr
    analysis = check_whole(run, 3)
    assert {trial.node for trial in analysis.trials if trial.lost} <= {gone.address}
    cluster.start_ray_on(gone)
    check_nothing_left_by_the_next_run(cluster, tmp_path)


@pytest.mark.table
def test_a_link_that_is_cut_for_good_loses_its_block(cluster: Hosts, tmp_path: Path) -> None:
    process = start_run(cluster, tmp_path)
    victim = cluster.hosts[1]
    victim.cut()
    check_the_block_is_lost(process, victim, tmp_path)
    victim.kill()
    victim.join()
    cluster.start_ray_on(victim)
    check_nothing_left(cluster)


@pytest.mark.table
def test_a_link_that_is_cut_for_three_seconds_leaves_whole_blocks(cluster: Hosts, tmp_path: Path) -> None:
    process = start_run(cluster, tmp_path, repeats=4)
    victim = cluster.hosts[1]
    victim.cut()
    time.sleep(3)
    victim.join()
    assert process.wait(180) in (0, 5), (tmp_path / "log").read_text()
    analysis = check_whole(only_run(tmp_path), 4)
    assert {trial.node for trial in analysis.trials if trial.lost} <= {victim.address}
    victim.kill()
    cluster.start_ray_on(victim)
    check_nothing_left(cluster)


def programs(host: Host) -> list[int]:
    """The pids of the programs that run trials on a host."""
    return [pid for pid, line in host.commands().items() if "powerband.cluster.node" in line]


@pytest.mark.table
def test_a_disk_that_fills_up_loses_its_block_and_its_node_is_out(apart: Hosts, tmp_path: Path) -> None:
    victim = apart.hosts[1]
    with tmpfs("64m") as disk:
        victim.env["TMPDIR"] = str(disk)
        apart.start_ray()
        process = start_run(apart, tmp_path)
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        assert process.wait(120) in (0, 5), (tmp_path / "log").read_text()
        analysis = check_whole(only_run(tmp_path), 3)
        assert {trial.node for trial in analysis.trials if trial.lost} == {victim.address}
        assert "No space left on device" in (tmp_path / "log").read_text()
        check_nothing_left(apart)
        assert [path.name for path in disk.iterdir() if path.name.startswith("powerband")] == []
        victim.kill()


@pytest.mark.table
def test_where_descriptors_run_out_nothing_half_done_counts(cluster: Hosts, tmp_path: Path) -> None:
    process = start_run(cluster, tmp_path)
    victim = cluster.hosts[1]
    for pid in programs(victim):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 4))
    assert process.wait(120) in (0, 5), (tmp_path / "log").read_text()
    analysis = check_whole(only_run(tmp_path), 3)
    assert any(trial.node == victim.address and not trial.valid for trial in analysis.trials)
    assert {trial.node for trial in analysis.trials if trial.lost} <= {victim.address}
    check_nothing_left(cluster)


@pytest.mark.table
def test_another_python_is_refused_before_anything_starts(cluster: Hosts, tmp_path: Path) -> None:
    """The Python on the hosts differs in its patch level only, as this process is told. Ray accepts that; powerband
    does not."""
    (tmp_path / "sitecustomize.py").write_text("import platform\nplatform.python_version = lambda: '3.11.99'\n")
    cluster.env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), cluster.env["PYTHONPATH"]])
    arguments = ["run", str(file_of(tmp_path)), "--cluster", cluster.address, "--runs", str(tmp_path / "runs")]
    done = cluster.powerband(*arguments)
    assert done.returncode == 5 and "this machine 3.11.99" in done.stderr, done.stderr
    assert all(f"{host.address} has python" in done.stderr for host in cluster.hosts)
    assert not any(ours(host) for host in cluster.hosts)


@pytest.mark.table
def test_a_slow_host_is_told_by_how_much_and_changes_no_verdict(apart: Hosts, tmp_path: Path) -> None:
    """Servers on the slow host wait twice as long for each request."""
    slow = apart.hosts[2]
    for host in apart.hosts:
        host.env["WAITS"] = "40ms" if host is slow else "20ms"
    apart.start_ray()
    file = tmp_path / "pool.yaml"
    file.write_text(SLOW)
    done = apart.powerband("run", str(file), "--cluster", apart.address, "--runs", str(tmp_path / "runs"))
    assert done.returncode in (0, 5), done.stderr
    analysis = check_whole(only_run(tmp_path), 6)
    assert analysis.nodes is not None
    ratios = {row.node: row.ratio for row in analysis.nodes.rows}
    own = ratios[slow.address]
    assert own is not None and own.high is not None and own.high < 1
    verdicts = {row.setting.id: row.verdict for row in analysis.settings if row.trials}
    assert analysis.answer.leader is not None and analysis.answer.leader.id == "threads=8"
    assert {verdicts["threads=2"], verdicts["threads=4"]} == {Verdict.WORSE}
    assert {row.best.id for row in analysis.nodes.rows if row.best is not None} == {"threads=8"}


@pytest.mark.table
def test_clocks_that_differ_and_a_time_of_day_that_is_set_back_change_nothing(apart: Hosts, tmp_path: Path) -> None:
    """The host that loads has been up for hours longer, and on both hosts the time of day leaps in mid-trial. A
    monotonic clock cannot leap: Linux sets that of a host once, before its first program."""
    if shutil.which("cc") is None:
        without("no C compiler (cc) here")
    server, loads = apart.hosts[1:]
    leap, shim = tmp_path / "leap", tmp_path / "wall_clock.so"
    source = Path(__file__).parents[1] / "fakes" / "wall_clock.c"
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    loads.older_s = 10_000
    for host in (server, loads):
        host.env |= {"LD_PRELOAD": str(shim), "LEAP_FILE": str(leap)}
    apart.start_ray()
    process = start_apart(apart, tmp_path)
    leap.touch()
    assert process.wait(120) in (0, 5), (tmp_path / "log").read_text()
    run = only_run(tmp_path)
    analysis, records = check_whole(run, 1), run.records()
    assert {record.status for record in records} == {"measured"}
    assert records[1].wall_ns < records[0].wall_ns - 3000e9, "it leapt"
    for record, trial in zip(records, analysis.trials, strict=True):
        (clock,) = trial.generators
        assert abs(clock.offset_ns - 10_000e9) <= clock.uncertainty_ns, "hosts here have one crystal"
        assert abs(clock.after_offset_ns - 10_000e9) <= clock.after_uncertainty_ns
        for engine in record.engines:
            window = engine["measure_start_ns"], engine["measure_end_ns"]
            assert record.phases["ready"] < window[0] < window[1] < record.phases["stopped"], "by the server's clock"
    check_nothing_left(apart)


@pytest.mark.table
def test_a_cluster_that_asks_for_no_token_is_refused(tmp_path: Path) -> None:
    need_hosts()
    with hosts(1) as made:
        made.env |= {"RAY_AUTH_MODE": "disabled"}
        made.start_ray()
        arguments = ["run", str(file_of(tmp_path)), "--cluster", made.address, "--runs", str(tmp_path / "runs")]
        done = made.powerband(*arguments)
        assert done.returncode == 2 and "asks for no token" in done.stderr


@pytest.mark.table
def test_who_shows_no_token_is_told_where_it_comes_from(cluster: Hosts, tmp_path: Path) -> None:
    arguments = ["run", str(file_of(tmp_path)), "--cluster", cluster.address, "--runs", str(tmp_path / "runs")]
    kept, cluster.env = cluster.env, {**cluster.env, "RAY_AUTH_TOKEN": "0" * 32}
    done = cluster.powerband(*arguments)
    cluster.env = kept
    assert done.returncode == 2 and "RAY_AUTH_TOKEN" in done.stderr, done.stderr


# Load from other hosts. Of three, the second runs servers, the third loads them, and the head does neither.


@pytest.mark.table
def test_a_server_is_loaded_from_another_host(cluster: Hosts, engine: Path, tmp_path: Path) -> None:
    """By a command of docs/cluster.md, and a file with the keys that it shows."""
    server, loads = cluster.hosts[1], cluster.hosts[2]
    folder = tmp_path / "server"
    folder.mkdir()
    script = folder / "my-server"
    script.write_text(
        f'#!/bin/sh\npwd\nexec {engine} serve --host "${{2%:*}}" --port "${{2#*:}}" --wait 20ms "$3" "$4"\n'
    )
    script.chmod(0o755)
    nodes = block_of("cluster.md", "cluster: {address").replace("bench-2", server.address)
    nodes = nodes.replace("bench-3", loads.address)
    subject = block_of("cluster.md", "subject: {command").replace('{port}",', '{port} --threads {threads}",', 1)
    file = file_of(tmp_path)
    file.write_text(re.sub("subject: .*\n", nodes + subject, file.read_text()))
    command = shown("cluster.md", "run", "FILE")
    given = [{"FILE": str(file), "auto": cluster.address}.get(word, word) for word in command]
    done = cluster.powerband(*given, "--runs", str(tmp_path / "runs"))
    assert done.returncode in (0, 5), done.stderr
    run = only_run(tmp_path)
    for trial in check_whole(run, 1).trials:
        assert trial.node == server.address and [clock.node for clock in trial.generators] == [loads.address]
        assert f"http://{server.address}:" in run.trial(trial.number).subject.read_text()
        assert "powerband-node-" in run.trial(trial.number).log.read_text(), "the server runs in a copy of its folder"
        assert abs(trial.generators[0].offset_ns) <= trial.generators[0].uncertainty_ns, "hosts here have one clock"
    assert "clock of " in done.stdout
    check_nothing_left(cluster)


@pytest.mark.table
def test_all_hosts_load_a_server_whose_own_count_is_their_sum(cluster: Hosts, engine: Path, tmp_path: Path) -> None:
    host = cluster.hosts[1]
    url = f"http://{host.address}:18080/"
    host.start([str(engine), "serve", "--host", host.address, "--port", "18080"], {}, tmp_path / "server.log")
    wait_for(lambda: b"listening" in (tmp_path / "server.log").read_bytes(), 10)

    def served() -> int:
        code = f"from urllib.request import urlopen; print(urlopen('{url}metrics').read().decode())"
        page = host.run([sys.executable, "-c", code], {}, 10).stdout
        return int(re.findall(r"^requests_total (\d+)$", page, re.MULTILINE)[0])

    before = served()
    stands_for = {"http://10.0.0.9:8080/": url, "auto": cluster.address, "10.0.0.9": host.address}
    command = [stands_for.get(word, word) for word in shown("cluster.md", "load")]
    short = ("-c", "9", "-d", "1s", "--warmup", "0s", "--format", "json")
    refused = cluster.powerband(*command[: command.index("--allow-host")], *short)
    assert refused.returncode == 2 and "--allow-host" in refused.stderr
    done = cluster.powerband(*command, *short)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {each["node"] for each in told["generators"]} == {each.address for each in cluster.hosts}
    assert set(told["outcomes"]) == {"ok"} and told["outcomes"]["ok"] == served() - before
    assert told["response_time_ns"]["count"] == told["outcomes"]["ok"]
    host.kill(" serve ")
    check_nothing_left(cluster)


def start_apart(cluster: Hosts, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a run of long trials, and waits until the third host loads the server of the second."""
    file = file_of(folder, duration="3s", repeats=1)
    arguments = ("run", str(file), "--cluster", cluster.address, "--generators", "1", "--runs", str(folder / "runs"))
    process = cluster.start_powerband(*arguments, log=folder / "log")
    wait_for(lambda: any(" load" in line for line in ours(cluster.hosts[2]).values()), 60)
    time.sleep(0.5)
    return process


@pytest.mark.table
@pytest.mark.parametrize("words", ["powerband-engine load", "powerband.cluster.generator"])
def test_what_is_killed_on_a_host_that_loads_costs_a_trial(cluster: Hosts, tmp_path: Path, words: str) -> None:
    process = start_apart(cluster, tmp_path)
    assert cluster.hosts[2].kill(words)
    assert process.wait(120) in (0, 5), (tmp_path / "log").read_text()
    analysis = analysis_of(only_run(tmp_path))
    assert sum(trial.status == "measured" for trial in analysis.trials) >= 2
    (gone,) = [trial for trial in analysis.trials if trial.status != "measured"]
    assert gone.lost == (words == "powerband.cluster.generator")
    check_nothing_left(cluster)


@pytest.mark.table
def test_a_host_that_loads_and_is_cut_off_leaves_no_engine_and_no_server(cluster: Hosts, tmp_path: Path) -> None:
    process = start_apart(cluster, tmp_path)
    victim = cluster.hosts[2]
    victim.cut()
    busy = (" load", " serve ")
    took_s = wait_for(
        lambda: not any(word in line for host in cluster.hosts for line in ours(host).values() for word in busy), 20
    )
    assert took_s < ENDED_S
    assert process.wait(60) == 5
    assert "no node of the cluster is left" in (tmp_path / "log").read_text()
    assert all(trial.status == "measured" or trial.lost for trial in analysis_of(only_run(tmp_path)).trials)
    victim.kill()
    victim.join()
    cluster.start_ray_on(victim)
    check_nothing_left(cluster)
