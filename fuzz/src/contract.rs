//! The parts of the wire contract that the parsers need.

#[path = "../../engine/src/contract/events.rs"]
pub mod events;
#[path = "../../engine/src/contract/outcome.rs"]
pub mod outcome;
#[path = "../../engine/src/contract/spec.rs"]
pub mod spec;
