//! The bottlenecks that options plant: `permits` (the global lock, and a downstream of limited capacity), `downstream`
//! (the same behind TCP) `collector` (the pauses of a garbage collector) and `stall` (freezes).

pub mod collector;
pub mod downstream;
pub mod permits;
pub mod stall;
