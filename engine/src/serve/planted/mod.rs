//! The bottlenecks that options plant: `permits` (the global lock, and a downstream of limited capacity), `downstream`
//! (the same behind TCP) and `collector` (the pauses of a garbage collector).

pub mod collector;
pub mod downstream;
pub mod permits;
