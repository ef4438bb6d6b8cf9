"""The dashboards of the subjects that come with powerband, from the metrics on their own pages.

A metric that only some settings have (a pool, event loops) leaves its panel empty for the others.
"""

from __future__ import annotations

from scripts.grafana.panels import Dashboard, Panel, Query, Section, most, now, per_second


def _line(expr: str, what: str = "") -> Query:
    return Query(expr, "{{setting}}" + (f" {what}" if what else ""))


REFERENCE = Dashboard(
    "reference",
    "powerband: subject reference",
    "Metrics of the reference server (powerband-engine serve), in each of its concurrency models",
    "requests_total",
    (
        Section(
            "Requests",
            (
                Panel("Requests answered", (_line(per_second("requests_total")),), unit="reqps"),
                Panel("Connections open", (_line(now("connections")),)),
                Panel("Connections accepted", (_line(per_second("connections_accepted_total")),), unit="cps"),
            ),
        ),
        Section(
            "Thread pool",
            (
                Panel(
                    "Threads",
                    (
                        _line(now("pool_threads"), "threads"),
                        _line(now("pool_active"), "with a task"),
                        _line(now("pool_largest"), "most so far"),
                        _line(now("pool_core"), "core"),
                        _line(now("pool_max"), "at most"),
                    ),
                ),
                Panel(
                    "Queue",
                    (
                        _line(now("queue_length"), "tasks"),
                        # A queue without a limit has +Inf, which no chart can show.
                        _line(f"{now('queue_limit')} < Inf", "limit"),
                    ),
                ),
                Panel(
                    "Tasks",
                    (
                        _line(per_second("tasks_completed_total"), "done"),
                        _line(per_second("tasks_rejected_total"), "refused"),
                    ),
                    unit="ops",
                ),
            ),
        ),
        Section(
            "Event loops",
            (
                Panel("Event loops", (_line(now("event_loops")),)),
                Panel(
                    "Requests of each loop",
                    (_line(per_second("event_loop_requests_total", "setting, loop"), "loop {{loop}}"),),
                    unit="reqps",
                ),
                Panel(
                    "Busy share of each loop",
                    (_line(per_second("event_loop_busy_seconds_total", "setting, loop"), "loop {{loop}}"),),
                    unit="percentunit",
                    about="Share of the time that it did not wait for events",
                ),
                Panel(
                    "Connections of each loop",
                    (_line(now("event_loop_connections", "setting, loop"), "loop {{loop}}"),),
                ),
                Panel(
                    "Requests that wait in each loop",
                    (_line(now("event_loop_pending", "setting, loop"), "loop {{loop}}"),),
                    about="For a timer, or for the downstream",
                ),
                Panel(
                    "Longest turn of each loop",
                    (_line(now("event_loop_turn_seconds_max", "setting, loop"), "loop {{loop}}"),),
                    unit="s",
                    about="Since its start: the longest time in which it served nothing else",
                ),
            ),
        ),
        Section(
            "WebSockets",
            (
                Panel("WebSockets open", (_line(now("websocket_connections")),), width=12),
                Panel("Messages echoed", (_line(per_second("websocket_messages_total")),), unit="ops", width=12),
            ),
        ),
        Section(
            "Downstream and garbage collector",
            (
                Panel(
                    "Downstream",
                    (
                        _line(now("downstream_in_use"), "in use"),
                        _line(now("downstream_waiting"), "waiting"),
                        _line(now("downstream_limit"), "limit"),
                    ),
                ),
                Panel("Collections", (_line(per_second("gc_pauses_total")),), unit="ops"),
                Panel(
                    "Time in collections",
                    (_line(per_second("gc_pause_seconds_total")),),
                    unit="percentunit",
                    about="Share of the time for which every thread was stopped",
                ),
            ),
        ),
    ),
)

THREADS = Dashboard(
    "threads",
    "powerband: subject threads",
    "Metrics of the plain Java server: a thread for each connection, pools, virtual threads",
    "server_requests_total",
    (
        Section(
            "Requests",
            (
                Panel("Requests answered", (_line(per_second("server_requests_total")),), unit="reqps"),
                Panel("Connections accepted", (_line(per_second("server_connections_accepted_total")),), unit="cps"),
                Panel(
                    "Connections refused",
                    (_line(per_second("server_connections_refused_total")),),
                    unit="cps",
                    about="By the pool, whatever its policy then did",
                ),
            ),
        ),
        Section(
            "Thread pool",
            (
                Panel(
                    "Threads",
                    (
                        _line(now("pool_threads"), "threads"),
                        _line(now("pool_active_threads"), "with a connection"),
                        _line(now("pool_max_threads"), "at most"),
                    ),
                ),
                Panel(
                    "Use of the pool",
                    (_line(f"{now('pool_active_threads')} / {now('pool_max_threads')}"),),
                    unit="percentunit",
                    about="Threads that hold a connection, as a share of the most that there may be",
                ),
                Panel("Connections that wait for a thread", (_line(now("pool_queued")),)),
            ),
        ),
    ),
)

_PER_INSTANCE = "instance {{instance}} on {{thread}}"

VERTX = Dashboard(
    "vertx",
    "powerband: subject vertx",
    "What each verticle instance and each event loop of the Vert.x server does",
    "vertx_instance_requests_total",
    (
        Section(
            "Verticle instances",
            (
                Panel(
                    "Requests of each instance",
                    (_line(per_second("vertx_instance_requests_total", "setting, instance, thread"), _PER_INSTANCE),),
                    unit="reqps",
                ),
                Panel(
                    "Connections of each instance",
                    (_line(now("vertx_instance_connections", "setting, instance, thread"), _PER_INSTANCE),),
                ),
                Panel(
                    "Changes of thread",
                    (
                        _line(
                            per_second("vertx_instance_thread_changes_total", "setting, instance"),
                            "instance {{instance}}",
                        ),
                    ),
                    unit="ops",
                    about="Requests on another thread than the one before",
                ),
                Panel(
                    "Connections of an instance",
                    (
                        _line(now("vertx_connections_per_instance_min"), "fewest"),
                        _line(now("vertx_connections_per_instance_max"), "most"),
                    ),
                ),
                Panel(
                    "Instances of an event loop",
                    (
                        _line(now("vertx_instances_per_loop_min"), "fewest"),
                        _line(now("vertx_instances_per_loop_max"), "most"),
                    ),
                ),
                Panel(
                    "Connections of an event loop",
                    (
                        _line(now("vertx_connections_per_loop_min"), "fewest"),
                        _line(now("vertx_connections_per_loop_max"), "most"),
                    ),
                ),
            ),
        ),
        Section(
            "Event loops",
            (
                Panel(
                    "CPU of each event loop",
                    (_line(per_second("vertx_loop_cpu_seconds_total", "setting, thread"), "{{thread}}"),),
                    unit="percentunit",
                ),
                Panel(
                    "Waiting for a CPU",
                    (_line(per_second("vertx_loop_run_wait_seconds_total", "setting, thread"), "{{thread}}"),),
                    unit="percentunit",
                    about="Share of the time that an event loop was ready to run and had no CPU",
                ),
                Panel(
                    "How many there are",
                    (
                        _line(now("vertx_event_loops"), "event loops that carry an instance"),
                        _line(now("vertx_default_event_loops"), "event loops by default"),
                        _line(now("vertx_worker_threads"), "worker threads"),
                        _line(now("vertx_processors"), "processors"),
                    ),
                ),
            ),
        ),
    ),
)

SPRING = Dashboard(
    "spring",
    "powerband: subject spring",
    "Metrics of Spring Boot's actuator: requests, the executor, connections to the database",
    "executor_pool_size_threads",
    (
        Section(
            "Requests",
            (
                Panel(
                    "Requests answered",
                    (
                        _line(
                            per_second("http_server_requests_seconds_count", "setting, method, uri, status, exception"),
                            "{{method}} {{uri}} {{status}} {{exception}}",
                        ),
                    ),
                    unit="reqps",
                ),
                Panel(
                    "Mean response time, as the server sees it",
                    (
                        _line(
                            f"{per_second('http_server_requests_seconds_sum', 'setting, uri')} / "
                            f"{per_second('http_server_requests_seconds_count', 'setting, uri')}",
                            "{{uri}}",
                        ),
                    ),
                    unit="s",
                    about="Without the time that a request waits for one of Tomcat's threads",
                ),
                Panel(
                    "Longest response time, as the server sees it",
                    (_line(most("http_server_requests_seconds_max", "setting, uri"), "{{uri}}"),),
                    unit="s",
                    about="Of the last minutes",
                ),
            ),
        ),
        Section(
            "Executor",
            (
                Panel(
                    "Threads",
                    (
                        _line(now("executor_pool_size_threads"), "threads"),
                        _line(now("executor_active_threads"), "with a task"),
                        _line(now("executor_pool_core_threads"), "core"),
                        _line(now("executor_pool_max_threads"), "at most"),
                    ),
                ),
                Panel(
                    "Use of the pool",
                    (_line(f"{now('executor_active_threads')} / {now('executor_pool_max_threads')}"),),
                    unit="percentunit",
                    about="Threads with a task, as a share of the most that there may be",
                ),
                Panel(
                    "Queue",
                    (
                        _line(now("executor_queued_tasks"), "tasks"),
                        _line(now("executor_queue_remaining_tasks"), "places left"),
                    ),
                ),
                Panel("Tasks done", (_line(per_second("executor_completed_tasks_total")),), unit="ops", width=24),
            ),
        ),
        Section(
            "Connections to the database",
            (
                Panel(
                    "Connections",
                    (
                        _line(now("hikaricp_connections"), "open"),
                        _line(now("hikaricp_connections_active"), "in use"),
                        _line(now("hikaricp_connections_idle"), "idle"),
                        _line(now("hikaricp_connections_max"), "at most"),
                    ),
                ),
                Panel(
                    "Threads that wait for a connection",
                    (_line(now("hikaricp_connections_pending")),),
                ),
                Panel(
                    "Time until a thread has a connection",
                    (
                        _line(
                            f"{per_second('hikaricp_connections_acquire_seconds_sum')} / "
                            f"{per_second('hikaricp_connections_acquire_seconds_count')}",
                            "mean",
                        ),
                        _line(most("hikaricp_connections_acquire_seconds_max"), "longest of the last minutes"),
                    ),
                    unit="s",
                ),
            ),
        ),
    ),
)

_MESSAGES = (
    Panel("Messages received", (_line(per_second("reflection_messages_total")),), unit="ops"),
    Panel("Messages sent", (_line(per_second("reflection_throws_total")),), unit="ops"),
    Panel(
        "In play",
        (
            _line(now("reflection_balls"), "messages"),
            _line(now("reflection_pairs"), "pairs"),
        ),
    ),
    Panel(
        "Lost",
        (_line(now("reflection_balls_lost_total")),),
        about="Turned away by a full mailbox or send queue, since the start",
    ),
    Panel(
        "Increments handed to StatsD",
        (
            _line(per_second("reflection_metric_updates_total"), "handed over"),
            _line(per_second("reflection_metric_errors_total"), "refused by the socket"),
        ),
        unit="ops",
        width=16,
    ),
)
_MEMORY = (
    Panel("Allocated", (_line(per_second("reflection_allocated_bytes_total")),), unit="Bps", width=12),
    Panel(
        "Heap after the last collection",
        (_line(now("reflection_heap_after_gc_bytes")),),
        unit="bytes",
        about="0 before the first",
        width=12,
    ),
)

PEKKO = Dashboard(
    "pekko",
    "powerband: subject pekko",
    "Metrics of the pairs of actors that reflect messages for ever",
    "reflection_messages_total",
    (Section("Messages", _MESSAGES), Section("Memory", _MEMORY)),
)

AKKA_NET = Dashboard(
    "akka-net",
    "powerband: subject akka-net",
    "Metrics of the pairs of Akka.NET actors that reflect messages for ever",
    "reflection_messages_total",
    (
        Section("Messages", _MESSAGES),
        Section("Memory", _MEMORY),
        Section(
            ".NET",
            (
                Panel(
                    "Time stopped by collections",
                    (_line(per_second("reflection_gc_pause_seconds_total")),),
                    unit="percentunit",
                ),
                Panel("Threads of the pool", (_line(now("reflection_pool_threads")),)),
                Panel("Waits for a lock", (_line(per_second("reflection_lock_contentions_total")),), unit="ops"),
                Panel(
                    "Lines of log",
                    (
                        _line(per_second("reflection_log_lines_total"), "asked for"),
                        _line(per_second("reflection_log_lines_written_total"), "written"),
                    ),
                    unit="ops",
                    width=24,
                ),
            ),
        ),
    ),
)

_PROCESS = "setting, role, process"
_NAMED = "{{role}} {{process}}"

SOCKETCLUSTER = Dashboard(
    "socketcluster",
    "powerband: subject socketcluster",
    "What each process of SocketCluster does: workers, brokers, balancers, master",
    "sc_processes",
    (
        Section(
            "Users and messages",
            (
                Panel("Users of each process", (_line(now("sc_connections", _PROCESS), _NAMED),)),
                Panel("Pings of each worker", (_line(per_second("sc_pings_total", _PROCESS), _NAMED),), unit="ops"),
                Panel(
                    "Messages of each process",
                    (_line(per_second("sc_messages_total", _PROCESS), _NAMED),),
                    unit="ops",
                    about="Of a balancer: reads; of a broker: publications",
                ),
                Panel(
                    "Users of a worker",
                    (
                        _line(now("sc_connections_per_worker_min"), "fewest"),
                        _line(now("sc_connections_per_worker_max"), "most"),
                    ),
                    width=12,
                ),
                Panel(
                    "Pings of a worker so far",
                    (
                        _line(now("sc_pings_per_worker_min"), "fewest"),
                        _line(now("sc_pings_per_worker_max"), "most"),
                    ),
                    width=12,
                ),
            ),
        ),
        Section(
            "Event loops",
            (
                Panel(
                    "Use of each event loop",
                    (_line(now("sc_event_loop_utilization_ratio", _PROCESS), _NAMED),),
                    unit="percentunit",
                    about="Share of the last second that it did not wait",
                ),
                Panel(
                    "Active and idle",
                    (
                        _line(per_second("sc_event_loop_active_seconds_total", _PROCESS), f"{_NAMED} active"),
                        _line(per_second("sc_event_loop_idle_seconds_total", _PROCESS), f"{_NAMED} idle"),
                    ),
                    unit="percentunit",
                ),
                Panel(
                    "How late timers are",
                    (
                        _line(now("sc_event_loop_delay_mean_seconds", _PROCESS), f"{_NAMED} mean"),
                        _line(now("sc_event_loop_delay_p99_seconds", _PROCESS), f"{_NAMED} p99"),
                        _line(now("sc_latest_delay_p99_seconds", "setting, role"), "{{role}} p99 of the latest"),
                    ),
                    unit="s",
                ),
                Panel(
                    "Busiest event loop of a role",
                    (
                        _line(now("sc_busiest_utilization_ratio", "setting, role"), "{{role}}"),
                        _line(now("sc_busiest_utilization_peak_ratio", "setting, role"), "{{role}} at its peak"),
                    ),
                    unit="percentunit",
                    about="The peak: the highest mean over 5 s since the first user",
                    width=24,
                ),
            ),
        ),
        Section(
            "Processes",
            (
                Panel("CPU of each process", (_line(per_second("sc_cpu_seconds_total", _PROCESS), _NAMED),)),
                Panel(
                    "Memory of each process",
                    (
                        _line(now("sc_resident_bytes", _PROCESS), _NAMED),
                        _line(now("sc_resident_before_users_bytes", _PROCESS), f"{_NAMED} before the first user"),
                    ),
                    unit="bytes",
                ),
                Panel(
                    "Up, and how often started",
                    (
                        _line(now("sc_up", _PROCESS), f"{_NAMED} up"),
                        _line(now("sc_starts_total", _PROCESS), f"{_NAMED} starts"),
                        _line(now("sc_processes", "setting, role"), "{{role}} processes"),
                    ),
                ),
                Panel(
                    "Machine",
                    (
                        _line(now("sc_load_average_1m"), "load average"),
                        _line(now("sc_processors"), "CPUs"),
                    ),
                    width=24,
                ),
            ),
        ),
    ),
)

SUBJECTS = (REFERENCE, THREADS, VERTX, SPRING, PEKKO, AKKA_NET, SOCKETCLUSTER)
