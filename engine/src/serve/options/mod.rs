//! The command line of `serve` and the values that it resolves to.

mod args;

pub use args::*;
