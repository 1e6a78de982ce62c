"""One durable node without any server: RocksDB, derived from the log."""
