//! The engine as a process, by its four commands. One program for all of these tests: it is linked once, and while one
//! test waits for its server another runs, whatever file it stands in.

mod link_process;
mod load_hostile;
mod load_outcomes;
mod load_runs;
mod load_socketcluster;
mod load_support;
mod load_tls;
mod load_websocket;
mod probe_counters;
mod probe_errors;
mod probe_lifecycle;
mod probe_log;
mod probe_of_serve;
mod probe_statsd;
mod probe_strangers;
mod probe_support;
mod protocol;
mod serve_hostile;
mod serve_models;
mod serve_plants;
mod serve_policies;
mod serve_process;
mod serve_support;
mod serve_websocket;
mod websocket_support;
