//! The parts of the load engine that parse input.

#[path = "../../engine/src/load/flight.rs"]
pub mod flight;
#[path = "../../engine/src/load/messages/mod.rs"]
pub mod messages;

pub mod http1;
