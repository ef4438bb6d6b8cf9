//! Threads that turn command lines, the end of stdin and signals into inputs of the coordinator. They decide nothing.

use std::io::BufRead;
use std::os::unix::process::parent_id;
use std::sync::mpsc::Sender;

use crate::load::input::Input;
use crate::sys::Signals;

/// Reads command lines until stdin ends.
pub fn read_commands(inputs: Sender<Input>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if line.trim().is_empty() {
                continue;
            }
            let input = match serde_json::from_str(&line) {
                Ok(command) => Input::Command(command),
                Err(error) => Input::Wrong(format!("{line}: {error}")),
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
        let _ = inputs.send(Input::Closed);
    });
}

/// Turns signals into inputs. Must be called before any other thread starts, so that all threads inherit the mask.
///
/// `controlled`: whether a controller has started this process. The kernel then sends SIGHUP when the *thread* that did
/// so ends: it counts only if the parent process has gone. Without a controller, SIGHUP comes from a terminal that is
/// closed, and ends the process by default.
pub fn catch_signals(inputs: Sender<Input>, controlled: bool) {
    let caught = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let signals = Signals::block(if controlled { &caught } else { &caught[..2] });
    let parent = parent_id();
    std::thread::spawn(move || {
        loop {
            let input = match signals.wait(None) {
                Some(libc::SIGHUP) if parent_id() == parent => continue,
                Some(libc::SIGHUP) => Input::Closed,
                _ => Input::Interrupted,
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    });
}
