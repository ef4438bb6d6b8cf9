//! Bottlenecks that options plant: `permits` (the global lock, and a downstream of limited capacity), `downstream` (the
//! client of such a downstream behind TCP), `collector` (garbage collection pauses) and `stall` (freezes).

pub mod collector;
pub mod downstream;
pub mod permits;
pub mod stall;
