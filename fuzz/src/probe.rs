//! The parsers of the probe.

#[path = "../../engine/src/probe/hsperfdata.rs"]
pub mod hsperfdata;
#[path = "../../engine/src/probe/page.rs"]
pub mod page;
