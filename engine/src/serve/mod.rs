//! (serve: entry point)

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {}

pub fn main(_args: Args) -> ExitCode {
    eprintln!("not built yet");
    ExitCode::from(2)
}
