"""Programs that a contributor runs by a `make` target, and no user: they make pages from the code, and pictures from
runs."""
