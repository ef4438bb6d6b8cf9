"""The contract with the engine, typed: the specs and commands that it takes, and the events that it writes."""
