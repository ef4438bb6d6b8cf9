"""The engine's contract, typed: the specs and commands it takes, the events it says."""
