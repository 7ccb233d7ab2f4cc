"""What is known of one HTTP request while it is served, for whoever serves it: its id, who asks, which answer it gets.

Knows no route.
"""

import re
import uuid
from collections.abc import Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Protocol

from starlette.types import Scope, Send

from parkway.request import Preempt

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_KEY = "parkway.exchange"


class Told(Protocol):
    """What an answer tells once it is over."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def answer_tokens(self) -> int: ...

    @property
    def prompt_ms(self) -> float: ...

    @property
    def preempt(self) -> Preempt: ...

    @property
    def reasons(self) -> Sequence[str]: ...


class Exchange:
    """One HTTP request. `client`: whose share of the server it is, "" where nobody has said yet.

    `send` is the server's own, past every layer that looks at the start of a response: what follows the start needs
    none of them, and a layer would cost each token a call.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self.id = _asked_id(scope) or f"req_{uuid.uuid4().hex[:24]}"
        self.client = ""
        self.send = send
        self.began_at = perf_counter()
        self.status: int | None = None
        self.answer: Told | None = None
        scope[_KEY] = self
        scope.setdefault("state", {})["request_id"] = self.id


CURRENT: ContextVar[Exchange | None] = ContextVar("parkway_exchange", default=None)
"""The request that the running task serves."""


def past_layers(scope: Scope, send: Send) -> Send:
    """How the rest of a response is sent once it has started; `send` where nobody has opened an exchange."""
    exchange: Exchange | None = scope.get(_KEY)
    return send if exchange is None else exchange.send


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that name, which is in lower case."""
    headers: Sequence[Any] = scope["headers"]
    return next((value for each, value in headers if each == name), None)


def _asked_id(scope: Scope) -> str | None:
    """The client's own, if it is fit for logs and headers."""
    asked = header(scope, b"x-request-id")
    return asked.decode() if asked and _SANE_ID.fullmatch(asked) else None
