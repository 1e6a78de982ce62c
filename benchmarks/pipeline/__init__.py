"""The pipeline beside Spark's own Parquet: ``python -m benchmarks.pipeline``."""
