"""The simulated world: network, disk, registry and time from one seed. Users may import it."""
