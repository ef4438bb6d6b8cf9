//! The command line of `serve` (`args`) and the values that it resolves to: `config`, in it `plan` (the work of a
//! request).

pub mod args;
pub mod config;
pub mod plan;
