"""The real world: sockets, files, the clock, logging, metrics. Everything above it can run in a simulated one."""
