//! HTTP/1.1 without time and without sockets: a step becomes its request and what is expected of its response (`plan`),
//! bytes become responses (`parse`), bodies are searched as they pass (`contains`).

pub mod contains;
pub mod parse;
pub mod plan;
