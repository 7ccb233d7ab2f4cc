"""A short name for everything that an answer's bits depend on besides the request."""

import hashlib

VERSION = "0.1.0"
"""Parkway's own; pyproject.toml reads it here."""


def fingerprint(*parts: str) -> str:
    """`fp_` and 16 hex digits of the parts, in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part.encode())
    return f"fp_{digest.hexdigest()[:16]}"
