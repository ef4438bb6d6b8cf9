//! One request from its bytes to its answer: `http` and `echo` (WebSockets) parse and write bytes, `work` does the work
//! of a request, `service` joins them. Threads and sockets belong to `models`.

pub mod echo;
pub mod http;
pub mod service;
pub mod work;
