//! The wire contract as JSON Schemas, generated from the types of `spec.rs`, `events.rs` and `link.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use schemars::{Schema, schema_for};

use crate::contract::events::{LoadEvent, ProbeEvent};
use crate::contract::link::{LinkEvent, LinkSpec};
use crate::contract::spec::{Command, LoadSpec, ProbeSpec};

#[derive(clap::Args)]
pub struct Args {
    /// Folder to write into (protocol/ in the repository)
    folder: PathBuf,
}

/// File name and schema of each message type.
fn schemas() -> [(&'static str, Schema); 7] {
    [
        ("load-spec.schema.json", schema_for!(LoadSpec)),
        ("probe-spec.schema.json", schema_for!(ProbeSpec)),
        ("command.schema.json", schema_for!(Command)),
        ("load-event.schema.json", schema_for!(LoadEvent)),
        ("probe-event.schema.json", schema_for!(ProbeEvent)),
        ("link-spec.schema.json", schema_for!(LinkSpec)),
        ("link-event.schema.json", schema_for!(LinkEvent)),
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
    use crate::contract::outcome::Outcome;

    #[test]
    fn the_committed_schemas_are_those_of_the_types() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol");
        for (name, schema) in schemas() {
            let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert_eq!(committed, render(&schema), "protocol/{name} is stale: run `make schemas`");
        }
    }

    /// Every `protocol/<folder>/SCHEMA.CASE.json` with its schema's name and text.
    fn examples(folder: &str) -> Vec<(String, String)> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../protocol").join(folder);
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        };
        files.map(read).collect()
    }

    fn parse(name: &str, text: &str) -> Result<(), serde_json::Error> {
        match name.split('.').next().unwrap() {
            "load-spec" => serde_json::from_str::<LoadSpec>(text).map(drop),
            "probe-spec" => serde_json::from_str::<ProbeSpec>(text).map(drop),
            "command" => serde_json::from_str::<Command>(text).map(drop),
            "load-event" => serde_json::from_str::<LoadEvent>(text).map(drop),
            "probe-event" => serde_json::from_str::<ProbeEvent>(text).map(drop),
            "link-spec" => serde_json::from_str::<LinkSpec>(text).map(drop),
            "link-event" => serde_json::from_str::<LinkEvent>(text).map(drop),
            other => panic!("{name}: there is no schema {other}"),
        }
    }

    #[test]
    fn good_examples_parse_and_bad_ones_do_not() {
        let (good, bad) = (examples("good"), examples("bad"));
        assert!(!good.is_empty() && !bad.is_empty());
        for (name, text) in good {
            parse(&name, &text).unwrap_or_else(|error| panic!("good/{name}: {error}"));
        }
        for (name, text) in bad {
            assert!(parse(&name, &text).is_err(), "bad/{name} was accepted");
        }
    }

    #[test]
    fn the_example_with_every_outcome_has_every_outcome() {
        let (_, text) = examples("good").into_iter().find(|(name, _)| name.contains("every-outcome")).unwrap();
        let Ok(LoadEvent::Interval(interval)) = serde_json::from_str(&text) else { panic!("not an interval") };
        assert_eq!(interval.outcomes.len(), Outcome::ALL.len());
    }
}
