//! The wire contract as JSON Schemas, generated from the types of `spec.rs` and `events.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use schemars::{Schema, schema_for};

use crate::events::{LoadEvent, ProbeEvent};
use crate::spec::{Command, LoadSpec, ProbeSpec};

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write into (protocol/ in the repository)
    folder: PathBuf,
}

/// File name and schema of each message type.
fn schemas() -> [(&'static str, Schema); 5] {
    [
        ("load-spec.schema.json", schema_for!(LoadSpec)),
        ("probe-spec.schema.json", schema_for!(ProbeSpec)),
        ("command.schema.json", schema_for!(Command)),
        ("load-event.schema.json", schema_for!(LoadEvent)),
        ("probe-event.schema.json", schema_for!(ProbeEvent)),
    ]
}

fn render(schema: &Schema) -> String {
    let mut text = serde_json::to_string_pretty(schema).expect("a schema is valid JSON");
    text.push('\n');
    text
}

pub fn main(args: Args) -> ExitCode {
    for (name, schema) in schemas() {
        let path = args.folder.join(name);
        if let Err(error) = std::fs::write(&path, render(&schema)) {
            eprintln!("powerband-engine: cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schemas_are_those_of_the_types() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol");
        for (name, schema) in schemas() {
            let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert_eq!(committed, render(&schema), "protocol/{name} is stale: run `make schemas`");
        }
    }
}
