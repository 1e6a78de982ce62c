"""Leader and followers of one queue: the driver around ``machines.replication``, its streams, the registry's part."""
