//! One request from its bytes to its answer: `http` and `echo` (a WebSocket) read and write bytes, `work` is what a
//! request costs, `service` joins them. Threads and sockets belong to `models`.

pub mod echo;
pub mod http;
pub mod service;
pub mod work;
