"""Tables of a run: CSV, Parquet, data frames."""
