//! Messages over WebSockets, without time and without sockets: makes a plan from a spec (`plan`) and texts from steps
//! (`template`), and interprets one connection's bytes as joins, answers and deliveries (`session`). The worker decides
//! which user sends which message when.

pub mod plan;
pub mod session;
pub mod template;
