"""The dashboard of any run: the metrics that powerband itself shows on `/metrics`."""

from __future__ import annotations

from scripts.grafana.panels import Dashboard, Panel, Query, Section, now

RUN = '{run="$run"}'
UNDER_LOAD = 'phase=~"warmup|measure|drain"'

_RUN = Section(
    "The run",
    (
        Panel(
            "Status",
            (Query(f"powerband_run_status{RUN} == 1", "{{status}}"),),
            kind="newest",
            names=True,
            width=4,
            height=4,
        ),
        Panel("Trials", (Query(f"powerband_run_trials{RUN}", "{{state}}"),), kind="newest", width=12, height=4),
        Panel("Time left", (Query(f"powerband_run_eta_seconds{RUN}", ""),), unit="s", kind="newest", width=4, height=4),
        Panel(
            "Settings in the race",
            (Query(f"sum(powerband_setting_in_race{RUN})", ""),),
            kind="newest",
            width=4,
            height=4,
        ),
        Panel(
            "Phases",
            (Query(f"max by (phase) (powerband_trial_phase{RUN} == 1)", "{{phase}}"),),
            about="The phase that the trial in flight was in",
            kind="spans",
            width=12,
        ),
        Panel(
            "Under load",
            (Query(f'max by (setting) (powerband_trial_phase{{run="$run",{UNDER_LOAD}}} == 1)', "{{setting}}"),),
            about="The setting that was loaded",
            kind="spans",
            width=12,
        ),
        Panel(
            "Nodes",
            (Query(f"powerband_node_status{RUN} == 1", "{{node}} {{status}}"),),
            about="Of a run on a cluster: what each node did",
            kind="spans",
            width=24,
        ),
    ),
)

_ANSWER = Section(
    "The answer so far",
    (
        Panel(
            "Estimates",
            (Query(now("powerband_setting_estimate", "setting, bound"), ""),),
            about="The objective of each setting, in base units, with its interval",
            kind="table",
            row="setting",
            column="bound",
            width=9,
        ),
        Panel(
            "Intervals as they narrow",
            (
                Query(now("powerband_setting_estimate", matchers='bound="value"'), "{{setting}}"),
                Query(now("powerband_setting_estimate", matchers='bound="low"'), "{{setting}} low"),
                Query(now("powerband_setting_estimate", matchers='bound="high"'), "{{setting}} high"),
            ),
            about="The objective as estimated after each trial",
            width=15,
        ),
    ),
)

_LOAD = Section(
    "Load",
    (
        Panel("Requests answered correctly", (Query(now("powerband_rate_per_second"), "{{setting}}"),), unit="reqps"),
        Panel("Requests that failed", (Query(now("powerband_errors_per_second"), "{{setting}}"),), unit="reqps"),
        Panel(
            "Requests in flight and users",
            (
                Query(now("powerband_in_flight"), "{{setting}} in flight"),
                Query(now("powerband_users"), "{{setting}} users"),
            ),
        ),
        Panel(
            "Response time",
            (
                Query(now("powerband_response_time_seconds", matchers='quantile="0.5"'), "{{setting}} p50"),
                Query(now("powerband_response_time_seconds", matchers='quantile="0.99"'), "{{setting}} p99"),
                Query(now("powerband_response_time_mean_seconds"), "{{setting}} mean"),
            ),
            unit="s",
            about="Of each second, from scheduled to done",
            logarithmic=True,
            width=24,
        ),
    ),
)

_RESOURCES = Section(
    "Where the time goes",
    (
        Panel("CPU by process tree", (Query(now("powerband_cpu_cores", "setting, tree"), "{{setting}} {{tree}}"),)),
        Panel(
            "Threads of the server by state",
            (Query(now("powerband_threads", "state"), "{{state}}"),),
            about="Thread seconds per second spent in each state",
            stacked=True,
        ),
        Panel(
            "Context switches of the server",
            (Query(now("powerband_context_switches_per_second"), "{{setting}}"),),
            unit="ops",
        ),
        Panel(
            "Memory by process tree",
            (Query(now("powerband_memory_bytes", "setting, tree"), "{{setting}} {{tree}}"),),
            unit="bytes",
            width=12,
        ),
        Panel(
            "Metrics of the server itself",
            (Query(now("powerband_gauge", "setting, name"), "{{setting}} {{name}}"),),
            about="Metrics of its own that the experiment asks for, and the heap of a JVM",
            width=12,
        ),
    ),
)

BENCH = Dashboard(
    "bench",
    "powerband: the bench",
    "A run of powerband as it goes on: load, response times, resources, and the answer so far",
    "powerband_run_info",
    (_RUN, _ANSWER, _LOAD, _RESOURCES),
)
