"""The proof, on the user's machine, that an answer does not depend on the traffic."""

from parkway.verify.command import run

__all__ = ["run"]
