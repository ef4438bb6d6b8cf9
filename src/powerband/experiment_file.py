"""Reads experiment and subject files; every error names file, line, column, key and the nearest right spelling."""
