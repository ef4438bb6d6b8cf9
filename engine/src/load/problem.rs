//! A problem that ends a run or prevents it: its kind, its text, and its exit code.

use std::process::ExitCode;

/// Exit code of a wrong spec or command line.
pub const WRONG: u8 = 2;
/// Exit code of a run that failed or never began, though nothing in its spec is wrong.
const FAILED: u8 = 1;

/// The text says what is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// One of the kinds of `ErrorEvent`.
    pub kind: &'static str,
    pub message: String,
}

impl Problem {
    pub fn spec(path: &str, message: impl std::fmt::Display) -> Problem {
        Problem { kind: "spec", message: format!("{path}: {message}") }
    }

    pub fn new(kind: &'static str, message: impl Into<String>) -> Problem {
        Problem { kind, message: message.into() }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if matches!(self.kind, "internal" | "launch") { FAILED } else { WRONG })
    }
}
