"""The reference backends: plain Python, no dependencies, nothing survives."""
