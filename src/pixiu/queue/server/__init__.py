"""The queue's port: connections, the commands of the wire, pushing to subscribers."""
