//! The concurrency models, one file each: `connections` (a thread for each connection, or a pool of such threads),
//! `pooled_requests`, `event_loop`, and `misbehave`, the servers that are bad on purpose. `listener` accepts connections
//! for all of them. The answers themselves come from `request`.

pub mod connections;
pub mod event_loop;
pub mod listener;
mod loop_connection;
pub mod misbehave;
pub mod pooled_requests;
