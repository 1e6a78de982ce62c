"""A replicated journal in one thread: nodes, disks, network, registry and blows."""
