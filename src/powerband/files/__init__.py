"""From experiment files, subject files and options to an `Experiment`, or every error with its place."""
