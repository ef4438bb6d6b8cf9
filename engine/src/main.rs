//! powerband-engine: everything in powerband that must be cheap or exact, in one binary. `load` drives users, `probe`
//! starts and samples process trees, `link` joins two network namespaces, `serve` is the reference subject, `schema`
//! prints the wire contract. It computes no statistics beyond histograms, and makes no decision about a trial.

mod clock;
mod contract;
mod duration;
mod lines;
mod link;
mod load;
mod probe;
mod scan;
mod serve;
mod socketcluster;
mod statsd;
mod sys;
mod websocket;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "powerband-engine",
    version,
    about = "Load generator, process probe and reference server of powerband"
)]
struct Cli {
    #[command(subcommand)]
    command: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Drive a load: JSON spec on stdin, JSON Lines on stdout; or alone, with a URL
    Load(load::Args),
    /// Start and sample process trees: JSON spec on stdin, JSON Lines on stdout
    Probe(probe::Args),
    /// Join two network namespaces by a link of a given delay and rate: JSON spec on stdin, JSON Lines on stdout
    Link(link::Args),
    /// The reference server: one tiny HTTP service in every concurrency model
    Serve(serve::Args),
    /// Write the JSON Schemas of the wire contract into a folder
    Schema(contract::schema::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Program::Load(args) => load::main(args),
        Program::Probe(args) => probe::main(args),
        Program::Link(args) => link::main(args),
        Program::Serve(args) => serve::main(args),
        Program::Schema(args) => contract::schema::main(args),
    }
}
