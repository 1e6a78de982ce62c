"""The processes: one folder each. They do not import each other; what they share is in machines, ports and model."""
