"""The data pipeline: from the log to tables, with Spark to compute and Delta to keep.

Nothing of a server imports this package, and this package imports pyspark, pyarrow, deltalake and duckdb only where
they are used: they are installed apart (``requirements/pipeline.txt``), and a server starts without them.
"""
