"""Anthropic's error shape. Knows no exception and no route, only where those are that speak so."""

import uuid
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

PATH = "/v1/messages"
HEADER = "request-id"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def spoken(request: Request) -> bool:
    """Whether who asks expects Anthropic's shapes."""
    path = request.url.path
    return path == PATH or path.startswith(f"{PATH}/")


def request_id(request: Request) -> str:
    """Of this request, the same whenever asked."""
    if not hasattr(request.state, "request_id"):
        request.state.request_id = f"req_{uuid.uuid4().hex[:24]}"
    told: str = request.state.request_id
    return told


def told(error: Mapping[str, Any], status: int, of_request: str) -> dict[str, Any]:
    """What OpenAI's shape says as `error`, in Anthropic's."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": _message(error)}, "request_id": of_request}


def _message(error: Mapping[str, Any]) -> Any:
    if "n_ctx" in error:
        # The words by which clients know that they should shorten the chat.
        return f"prompt is too long: {error['n_prompt_tokens']} tokens > {error['n_ctx'] - 1} maximum"
    return error["message"]
