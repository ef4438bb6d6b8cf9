//! The concurrency models: `connections` (one thread per connection, new or from a pool), `pooled_requests` (a pool
//! whose tasks are requests), `event_loop`, and `misbehave` (servers that are bad on purpose). `listener` accepts
//! connections for all of them. The answers come from `request`.

pub mod connections;
pub mod event_loop;
pub mod listener;
mod loop_connection;
pub mod misbehave;
pub mod pooled_requests;
