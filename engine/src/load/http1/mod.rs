//! HTTP/1.1 without time and without sockets: a step becomes the bytes of its request (`render`), bytes become responses
//! (`parse`), bodies are searched as they pass (`contains`).

pub mod contains;
pub mod parse;
pub mod render;
