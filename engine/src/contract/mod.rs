//! The wire contract: what the control plane sends (`spec`), what the engine prints (`events`), how a request can end (`outcome`), and
//! the JSON Schemas made of these types (`schema`).

pub mod events;
pub mod outcome;
pub mod schema;
pub mod spec;
