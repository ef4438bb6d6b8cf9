//! The parts of the load engine's HTTP/1 that parse responses.

#[path = "../../../engine/src/load/http1/contains.rs"]
pub mod contains;
#[path = "../../../engine/src/load/http1/parse.rs"]
pub mod parse;
