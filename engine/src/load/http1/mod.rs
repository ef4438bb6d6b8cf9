//! HTTP/1.1 without time and without sockets: turns a step into its request and the expectations of its response
//! (`plan`), parses bytes into responses (`parse`), and searches bodies as they arrive (`contains`).

pub mod contains;
pub mod parse;
pub mod plan;
