"""A real Prometheus returns data for the dashboards of the bench and of the reference subject. The dashboards of other
subjects are checked where their experiments run. Needs `prometheus`: skipped without, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import pytest

from fakes.dashboards import Seen, Watch, check_dashboard
from fakes.needs import need_prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

REFERENCE = """
name: {name}
subject: {{use: reference, set: {{{settings}}}{more}}}
factors: {factors}
load: {{users: 8, duration: {duration}{load}}}
measure: {{warmup: 500ms, repeats: {repeats}, slots: false, metrics: {{{metrics}}}}}
profiles: {{smoke: {{}}}}
"""


@pytest.mark.long
def test_the_bench_and_the_reference_subject(watch: Watch) -> None:
    need_prometheus()
    pool = reference(
        watch,
        "pool",
        "model: bounded, max: 4, queue: 16, wait: 3ms, downstream_limit: 2, gc_every: 500ms, gc_for: 5ms",
        factors="{core: [1, 2]}",
        repeats="3",  # an interval needs two valid trials
        metrics="app_queue: mean(queue_length)",
    )
    check_dashboard("bench", [pool])
    labels = trials(pool, "powerband_rate_per_second")
    assert labels == trials(pool, "requests_total")
    assert {setting for setting, _ in labels} == {"core=1", "core=2"} and len(labels) == 6
    loops = reference(watch, "loops", "model: event-loop")
    websocket = reference(
        watch,
        "websocket",
        "model: event-loop, protocol: websocket",
        more=', url: "ws://127.0.0.1:{port}/"',
        load=", websocket: {}, scenario: [{message: ping}]",
    )
    check_dashboard("reference", [pool, loops, websocket])


def reference(watch: Watch, name: str, settings: str, **fields: str) -> Seen:
    defaults = {"factors": "{seed: [1]}", "repeats": "1", "metrics": "", "load": "", "more": "", "duration": "6s"}
    file = watch.runs.parent / f"{name}.yaml"
    file.write_text(REFERENCE.format(name=name, settings=settings, **{**defaults, **fields}))
    return watch.run(str(file))


def trials(seen: Seen, metric: str) -> set[tuple[str, str]]:
    """Setting and number of each trial that has the metric."""
    found = [series["metric"] for series in seen.series(f'{metric}{{run="$run"}}')]
    return {(labels["setting"], labels["trial"]) for labels in found}
