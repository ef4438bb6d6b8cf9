//! The engine's parsers, included by the paths of their files, since the engine is a program without a library.

#![allow(dead_code)]

#[path = "../../engine/src/clock.rs"]
pub mod clock;
pub mod contract;
pub mod load;
pub mod probe;
#[path = "../../engine/src/scan.rs"]
pub mod scan;
#[path = "../../engine/src/socketcluster/mod.rs"]
pub mod socketcluster;
#[path = "../../engine/src/socketcluster/oracle.rs"]
pub mod socketcluster_oracle;
#[path = "../../engine/src/statsd/mod.rs"]
pub mod statsd;
#[path = "../../engine/src/statsd/oracle.rs"]
pub mod statsd_oracle;
#[path = "../../engine/src/websocket/mod.rs"]
pub mod websocket;
