//! `powerband-engine load`: drives users or arrivals against a server and records the outcome of every request. In: a
//! `LoadSpec` and `Command`s on stdin. Out: `LoadEvent`s on stdout. With a URL it runs alone (`alone`) and prints a
//! summary. Layers: `coordinator` > `worker` (the loop) > its protocols > `http1`, `messages` (bytes), `recorder`,
//! `timers`, `tls` > `sys`.

mod alone;
mod arrivals;
mod check;
mod control;
mod coordinator;
mod flight;
mod http1;
mod input;
mod messages;
mod phases;
mod plan;
mod problem;
mod recorder;
mod show;
mod sys;
mod timers;
mod tls;
mod worker;

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::channel;

pub use alone::Args;

use crate::contract::events::{ErrorEvent, Hello, LoadEvent};
use crate::contract::print;
use crate::contract::spec::{LoadSpec, check_protocol};
use input::Input;
use problem::{Problem, WRONG};

pub fn main(args: Args) -> ExitCode {
    let descriptor_limit = crate::sys::raise_descriptor_limit().1;
    if args.is_alone() {
        return alone::main(&args, descriptor_limit);
    }
    if std::io::stdin().is_terminal() {
        eprintln!(
            "powerband-engine load: no URL; to run alone give one (powerband-engine load http://127.0.0.1:8080/), \
             to be controlled give a load spec on stdin; --help tells more"
        );
        return ExitCode::from(WRONG);
    }
    print(&LoadEvent::Hello(Hello::now(descriptor_limit)));
    let run = || {
        // Before the run there is nothing to end in good order: signals end the process by default.
        let spec = read_spec()?;
        let (sender, inputs) = channel::<Input>();
        control::catch_signals(sender.clone(), true);
        sys::hang_up_with_parent();
        let plan = plan::make(spec, descriptor_limit)?;
        control::read_commands(sender.clone());
        coordinator::run(plan, sender, inputs, &mut |event| print(&event))
    };
    match run() {
        Ok(summary) => {
            print(&LoadEvent::Summary(Box::new(summary)));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            let code = problem.exit_code();
            print(&LoadEvent::Error(ErrorEvent::new(problem.kind, problem.message)));
            code
        }
    }
}

/// Reads the first line of stdin.
fn read_spec() -> Result<LoadSpec, Problem> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(Problem::new(
            "spec",
            "stdin: empty; the first line must be a load spec (JSON), or give a URL to run alone",
        )),
        Ok(_) => {
            check_protocol(line.as_bytes()).map_err(|message| Problem::new("spec", message))?;
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&line))
                .map_err(|error| Problem::spec(&error.path().to_string(), error.inner()))
        }
        Err(error) => Err(Problem::new("spec", format!("stdin: {error}"))),
    }
}
