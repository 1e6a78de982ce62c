"""What a queue has on disk: journal, topics, keys, snapshots; how it is recovered, verified, trimmed, blanked."""
