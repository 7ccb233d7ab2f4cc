"""The outermost layer: gives every request its id and, when it is over, its line in the log and its place in counts.

Knows no route and no body.
"""

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parkway.api.exchange import CURRENT, Exchange
from parkway.logs import own_fields

logger = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""nginx's status of a request whose client went away before the answer began."""
_POLLED = frozenset({"/health", "/v1/health", "/metrics", "/slots"})
_ID_HEADER = b"x-request-id"

Count = Callable[[str, str, int], object]
"""Takes route, method and status of a request that is over."""


class RequestLog:
    """Logs all requests but those that machines repeat all day: health, metrics, slots."""

    def __init__(self, app: ASGIApp, count: Count) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send)
        token = CURRENT.set(exchange)

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_ID_HEADER, exchange.id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_start)
        finally:
            CURRENT.reset(token)
            self._tell(exchange, scope)

    def _tell(self, exchange: Exchange, scope: Scope) -> None:
        route = getattr(scope.get("route"), "path", "")
        status = exchange.status or CLIENT_LEFT
        self._count(route, scope["method"], status)
        if logger.isEnabledFor(logging.INFO) and scope["path"] not in _POLLED:
            fields = _fields(exchange, scope["method"], route or "unknown", status)
            logger.info("%s", _sentence(fields), extra=own_fields({"event": "request"} | fields))


def _fields(exchange: Exchange, method: str, route: str, status: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "request_id": exchange.id,
        "method": method,
        "route": route,
        "status": status,
        "client": exchange.client,
        "total_ms": round((perf_counter() - exchange.began_at) * 1000, 1),
    }
    if answer := exchange.answer:
        parks = answer.preempt
        fields |= {
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "answer_tokens": answer.answer_tokens,
            "first_token_ms": round(answer.prompt_ms, 1),
            "parks": parks.parks,
            "parked_ms": parks.parked_ms,
            "finish_reasons": list(answer.reasons),
        }
    return fields


def _sentence(fields: dict[str, Any]) -> str:
    told = "{request_id} {method} {route} {status} {total_ms:.0f} ms".format_map(fields)
    if fields["client"]:
        told += f", client {fields['client']}"
    if "prompt_tokens" in fields:
        told += (
            ": {prompt_tokens} + {answer_tokens} tokens ({cached_tokens} cached), "
            "the first after {first_token_ms:.0f} ms"
        ).format_map(fields)
        if fields["parks"]:
            told += ", parked {parks} x for {parked_ms} ms".format_map(fields)
        told += ", " + ", ".join(fields["finish_reasons"])
    return told
