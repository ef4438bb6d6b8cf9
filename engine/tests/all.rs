//! Tests of the engine as a process, by its four commands. All of them are one program, so that it is linked once, and
//! tests of any file can run while others wait for their server.

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
