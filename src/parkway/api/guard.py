"""Who may ask at all: API keys, origins of web pages, sizes of bodies. Knows no route but those that need no key."""

import hashlib
import hmac
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parkway.api.exchange import CURRENT, header
from parkway.api.failures import refusal, response
from parkway.api.request_log import Count, RequestLog
from parkway.config import ServerSettings

PUBLIC = frozenset({"/", "/health", "/v1/health"})
"""Needs no key: what tells whether the server is there."""
_LOCALHOST = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_FINGERPRINT_DIGITS = 8


def guarded(app: ASGIApp, settings: ServerSettings, count: Count) -> ASGIApp:
    """`app` behind all layers, the outermost of which counts requests."""
    app = BodyLimit(app, settings.max_body_bytes)
    app = Keys(app, settings.api_keys)
    if origins := settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=[each for each in origins if each != "localhost"],
            allow_origin_regex=_LOCALHOST if "localhost" in origins else None,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "request-id", "retry-after"],
        )
    return RequestLog(app, count)


class Keys:
    """Lets those in who have a key, all where there is none. Says whose share of the server a request is.

    That is the key's, by a fingerprint that tells nobody the key; without keys, the address's.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = CURRENT.get()
        digest = self._found(scope) if self._digests else None
        if self._digests and digest is None and scope["path"] not in PUBLIC:
            await _refuse(scope, receive, send, HTTPException(401, "this server needs a valid API key", _CHALLENGE))
            return
        if exchange is not None:
            exchange.client = digest.hex()[:_FINGERPRINT_DIGITS] if digest else (scope.get("client") or ("",))[0]
        await self._app(scope, receive, send)

    def _found(self, scope: Scope) -> bytes | None:
        """The digest of the request's key, if it is one of ours. Takes as long for any key that is not."""
        given = [_digest(key) for key in _given(scope)]
        found = None
        for key in given:
            for digest in self._digests:
                if hmac.compare_digest(key, digest):
                    found = digest
        return found


class BodyLimit:
    """Refuses bodies that say that they are too large, and stops reading those that turn out to be."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._too_large = f"the body is larger than {most_bytes} bytes, the limit of this server"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = header(scope, b"content-length")
        if length is None:
            await self._app(scope, self._counted(receive), send)
        elif int(length) > self._most_bytes:  # the server has checked that it is a number
            await _refuse(scope, receive, send, self._failure())
        else:
            await self._app(scope, receive, send)

    def _failure(self) -> HTTPException:
        return HTTPException(413, self._too_large)

    def _counted(self, receive: Receive) -> Receive:
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self._most_bytes:
                raise self._failure()
            return message

        return counted


_CHALLENGE = {"www-authenticate": "Bearer"}


async def _refuse(scope: Scope, receive: Receive, send: Send, failure: HTTPException) -> None:
    told = response(Request(scope), refusal(failure.status_code, failure.detail), failure.status_code, failure.headers)
    await told(scope, receive, send)


def _given(scope: Scope) -> tuple[bytes, bytes]:
    """What may be a key, in either header."""
    scheme, _, bearer = (header(scope, b"authorization") or b"").partition(b" ")
    return bearer.strip() if scheme.lower() == b"bearer" else b"", header(scope, b"x-api-key") or b""


def _digest(key: bytes) -> bytes:
    """Of one length for all, so that comparing takes the same time whatever is asked with."""
    return hashlib.sha256(key).digest()
