"""The lake: tables of Parquet files under Delta logs, and how rows get into them exactly once."""
