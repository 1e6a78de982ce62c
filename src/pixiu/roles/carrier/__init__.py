"""The carrier: follows the log, writes the stores, wakes the relay, and sees tasks through."""
