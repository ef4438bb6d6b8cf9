"""What a contributor runs by a `make` target and no user ever does: pages made from the code, pictures from runs."""
