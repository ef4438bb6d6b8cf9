"""A run as tables: CSV, Parquet, data frames."""
