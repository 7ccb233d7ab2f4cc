"""Owns the slots: the engine that computes and the doors through which others talk to it. Speaks token ids only."""
