"""The log in Kafka behind the queue's port: what a cluster asks of its queue, answered by whoever owns the log."""
