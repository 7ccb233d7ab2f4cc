"""HTTP over an engine's door: the only folder that knows JSON."""
