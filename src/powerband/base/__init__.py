"""What every other room may use: units, errors, host names, YAML with places, the cache folder."""
