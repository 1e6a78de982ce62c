"""Two commits measured side by side: `python -m benchmarks.ab --base REV`."""
