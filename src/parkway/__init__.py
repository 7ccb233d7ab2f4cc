"""Parkway: an LLM server where a chat is parked, never failed, and its answer never depends on the traffic."""
