//! Messages over WebSockets, without time and without sockets: a spec becomes a plan (`plan`), steps become texts
//! (`template`), and one connection's bytes become joins, answers and deliveries (`session`). Who sends what when is the
//! worker's business.

pub mod plan;
pub mod session;
pub mod template;
