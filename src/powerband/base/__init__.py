"""Shared basics for all other packages: units, errors, host names, YAML with positions, the cache folder."""
