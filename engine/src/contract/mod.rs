//! The wire contract: the control plane's input to the engine (`spec`), the engine's output (`events`, written by
//! `print`), the outcomes of a request (`outcome`), both sides of a link (`link`), and the JSON Schemas made of these
//! types (`schema`).

pub mod events;
pub mod link;
pub mod outcome;
pub mod schema;
pub mod spec;

use std::io::Write;

/// Writes an event as one line to stdout. Returns false if nobody reads it any more.
pub fn print(event: &impl serde::Serialize) -> bool {
    let mut line = serde_json::to_string(event).expect("an event is always valid JSON");
    line.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_ok()
}
