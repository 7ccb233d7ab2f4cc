"""What was measured and how: one command each, run as `python -m benchmarks.NAME` from the repository's root."""
