"""What the pages of docs/experiments say in prose of what was found is of the kept data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.keep import DATA, Kept
from scripts.whole import RUNS, analysed, unpacked

from fakes.pages import ROOT, tables

EXPERIMENTS = ROOT / "docs" / "experiments"
MADE = re.compile(r"<!-- made by.*?-->.*?<!-- end of .*?-->", re.S)
# A figure of what was found: "1.08 times", "99 % of", "0.34 of a CPU", "9,980/s", "47 ns".
FOUND = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)(?=(?: to [\d.,]+)?(?: times| %| of a (?:CPU|core)|/s\b| ns\b))")
# Figures that no table of the page has, each with the test that holds it to the data.
ELSEWHERE = {
    "akka-net.md": {
        **dict.fromkeys(("80", "93"), "test_what_the_metric_and_the_debug_log_take_on_akka_net_is_of_the_data"),
        **dict.fromkeys(("47", "42", "348", "58"), "test_what_handing_over_costs_is_of_the_data"),
    },
    "infinite-reflection.md": {
        **dict.fromkeys(("94", "91"), "test_what_the_metric_and_the_debug_log_take_on_pekko_is_of_the_data"),
        **dict.fromkeys(("98", "99"), "test_what_the_metric_takes_by_dispatcher_is_of_the_data"),
    },
    "reference-server.md": {
        "2": "test_the_best_settings_serve_what_theory_allows",
        "8": "test_a_short_queue_brings_so_much_more",
        **dict.fromkeys(("0.1", "8.0"), "test_pools_against_an_event_loop_are_of_the_kept_run"),
        **dict.fromkeys(("800", "1,584", "3,153", "12,800"), "theory"),
    },
    "socketcluster-throughput.md": {
        **dict.fromkeys(("0.92", "0.91"), "test_what_a_balancer_takes_is_of_the_data"),
        "3": "a margin",
    },
    "thread-vs-pool.md": {"9,980": "test_what_a_million_requests_took_is_of_the_data"},
    "vertx-instances.md": {"99": "test_two_instances_keep_both_cpus_busy"},
}


def rows(folder: str) -> dict[str, dict[str, float]]:
    """The metrics of each setting of kept data, by the setting's id."""
    settings = Kept.read(DATA / folder).analysis["settings"]
    return {
        row["setting"]["id"]: {name: found["value"] for name, found in row["estimates"].items()} for row in settings
    }


def page(name: str) -> str:
    return (EXPERIMENTS / name).read_text()


@pytest.mark.parametrize("name", sorted(path.name for path in EXPERIMENTS.glob("*.md") if ".ko" not in path.name))
def test_each_figure_of_the_prose_is_in_a_table_of_data_or_has_its_test(name: str) -> None:
    """The README quotes the tables of all pages. A publication's own figures are in the tables, too."""
    made = "".join(MADE.findall(page(name)))
    if name == "README.md":
        made = "".join(part for path in EXPERIMENTS.glob("*.md") for part in MADE.findall(path.read_text()))
    prose = re.sub(r"`[^`\n]*`", " ", MADE.sub("", page(name)))
    prose = "\n".join(line for line in prose.splitlines() if name == "README.md" or not line.startswith("|"))
    own = (
        ELSEWHERE.get(name, {})
        if name != "README.md"
        else {k: v for each in ELSEWHERE.values() for k, v in each.items()}
    )
    there = set(re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", made)) | set(own)
    assert [figure for figure in FOUND.findall(prose) if figure not in there] == []


def test_each_figure_without_a_table_has_a_test_that_is_there() -> None:
    tests = "".join((ROOT / "tests" / "unit" / "docs" / name).read_text() for name in ("test_kept.py", "test_found.py"))
    named = {test for figures in ELSEWHERE.values() for test in figures.values() if test.startswith("test_")}
    assert {test for test in named if f"def {test}(" not in tests} == set()


def test_by_how_much_dispatchers_throughput_and_pairs_matter_is_of_the_data() -> None:
    """The largest ratio of a comparison that was refuted; two of the claims are of less than 1.5 times."""
    claims = {
        each["id"]: each["parts"] for each in Kept.read(DATA / "infinite-reflection-2026-11-25").analysis["claims"]
    }
    least = {"dispatcher-makes-no-great-difference": 1.5, "throughput-makes-no-great-difference": 1.5}
    most = max(
        part["interval"]["value"] * least.get(name, 1.0)
        for name in (*least, "five-pairs-are-slower")
        for part in claims[name]
        if part["verdict"] == "refuted"
    )
    plateau = rows("reflection-plateau-2026-11-27")
    pool, pinned = (plateau[f"metrics=off,dispatcher={each}"]["goodput_per_s"] for each in ("thread-pool", "pinned"))
    assert f"{most:.0f} {pool / pinned:.0f}" == "7 70"
    assert "matter by factors of up to seven, dedicated threads by 70." in page("infinite-reflection.md")


def test_by_how_much_pairs_and_threads_matter_on_akka_net_is_of_the_data() -> None:
    claims = {
        each["id"]: each["parts"] for each in Kept.read(DATA / "akka-net-reflection-2026-11-25").analysis["claims"]
    }
    pairs = max(p["interval"]["value"] for p in claims["five-pairs-are-slower"] if p["verdict"] == "refuted")
    rates = [row["goodput_per_s"] for name, row in rows("akka-net-suspicions-2026-11-25").items() if ONE_PAIR in name]
    baseline, one_thread = rates[0], max(rates)
    assert f"{max(pairs, one_thread / baseline):.0f}" == "5" and one_thread / baseline > 2
    assert "pairs and threads matter by factors of up to five." in page("akka-net.md")


ONE_PAIR = "message=allocated,neighbours=0,balls=6,gc=workstation"


def test_what_handing_over_costs_is_of_the_data() -> None:
    def cost(folder: str, *words: str) -> str:
        (row,) = [row for name, row in rows(folder).items() if all(word in name for word in words)]
        return f"{row['subject_cpu_ns_per_request']:.0f}"

    alone = [cost(f"{each}-suspicions-2026-11-25", "parallelism=1") for each in ("akka-net", "reflection")]
    handed = [
        cost("akka-net-reflection-2026-11-25", "metrics=off,dispatcher=thread-pool,pairs=1"),
        cost("infinite-reflection-2026-11-25", "dispatcher=thread-pool,throughput=100,pairs=1,balls=6"),
    ]
    said = "a message takes {} ns of CPU on Akka.NET and {} ns on Pekko; on the thread pool {} and {} ns."
    assert said.format(*alone, *handed) in page("akka-net.md")


def test_what_a_million_requests_took_is_of_the_data() -> None:
    found = rows("thread-vs-pool-published-2026-11-27")
    first = min(found, key=lambda pool: found[pool]["finish_s"])
    rate, threads = found[first]["goodput_per_s"], found[first]["threads_max"]
    most = found["pool=per-request"]["threads_max"]
    at = f"{float(f'{rate:.3g}'):,.0f}/s"
    said = f"it finished a million requests first, at {at}, with {threads:.0f} threads, not {most:,.0f};"
    assert first == "pool=fixed:16" and said in page("thread-vs-pool.md")


def test_two_instances_keep_both_cpus_busy() -> None:
    found = rows("vertx-instances-2026-11-26")
    assert found["instances=1"]["subject_cpu_cores"] == pytest.approx(1, abs=0.02)
    busy = f"{100 * found['instances=2']['host_busy_share']:.0f}"
    assert f"with two both CPUs are in use {busy} % of the time" in page("vertx-instances.md")


def test_the_best_settings_serve_what_theory_allows() -> None:
    best = {
        "quickstart-2026-11-27": 64 / 0.0203,
        "queue-and-rejection-2026-11-28": 32 / 0.02,
    }
    served = {folder: max(row["goodput_per_s"] for row in rows(folder).values()) for folder in best}
    off = [served[folder] / theory - 1 for folder, theory in best.items()]
    assert max(map(abs, off)) <= 0.02
    assert "and `queue-and-rejection` serve what theory allows, within 2 %.**" in page("reference-server.md")


def test_a_short_queue_brings_so_much_more() -> None:
    found = rows("queue-and-rejection-2026-11-28")
    none, short = (found[f"core=8,max=32,queue={queue}"]["goodput_per_s"] for queue in (0, 100))
    assert f"A short queue brings {100 * (short / none - 1):.0f} % more goodput" in page("reference-server.md")


def test_pools_against_an_event_loop_are_of_the_kept_run(tmp_path: Path) -> None:
    analysis = analysed(unpacked(RUNS / "pool-vs-event-loop.tar.xz", tmp_path / "run"))
    text = page("reference-server.md")
    assert f"{sum(trial.valid for trial in analysis.trials)} of {len(analysis.trials)} trials valid ([the run]" in text
    ((_, *shown),) = [table for table in tables(text) if table[0][0] == "model"]
    settings = {str(row.setting.as_dict()["model"]): row for row in analysis.settings}
    names = {"**event-loop**": "event-loop", "thread for each connection": "thread-per-connection"}
    assert len(shown) == len(settings)
    for name, rate, p99, cpu, bottleneck in shown:
        row = settings[names.get(name, name.split(" ")[0])]
        goodput = row.estimates["goodput_per_s"]
        assert goodput.low is not None and goodput.high is not None
        said = [float(figure.replace(",", "")) for figure in re.findall(r"[\d,]+", rate)]
        assert said == pytest.approx([goodput.value, goodput.low, goodput.high], rel=0.006)
        assert p99 == f"{row.estimates['response_time_ns_p99'].value / 1e6:.1f} ms"
        assert float(cpu) == round(row.estimates["subject_cpu_ns_per_request"].value / 1000)
        assert bottleneck == ("not known" if row.bottleneck is None else "CPU")
    best = settings["event-loop"].estimates["goodput_per_s"].value
    assert abs(best / (256 / 0.02005) - 1) <= 0.02, "256 users, 20 ms and 0.05 ms"
    worse = [row.effect for row in analysis.settings if row.verdict == "worse"]
    low, high = min((100 * (1 - each.high), 100 * (1 - each.low)) for each in worse if each and each.low and each.high)
    assert f"both pools are worse (the nearer by {low:.1f} to {high:.1f} %)" in text and len(worse) == 2


def test_what_other_pools_came_to_is_the_page_of_capacities() -> None:
    (pools,) = [
        table
        for table in tables((ROOT / "docs" / "methods" / "capacity.md").read_text())
        if "figure, of M/G/k" in table[0]
    ]
    at = pools[0].index("figure, of M/G/k")
    found = [float(end) for row in pools[1:] for end in row[at].split(" to ")]
    assert f"[{min(found)} to {max(found)} of theory]" in page("reference-server.md")
