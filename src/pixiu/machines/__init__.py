"""State machines: no I/O, no clock, no randomness. Events in, effects out; bytes in, values out."""
