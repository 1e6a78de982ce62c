"""The embedded index of messages. The pipeline writes it; a node reads it."""
