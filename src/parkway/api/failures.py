"""The error of everything that can go wrong over HTTP, in OpenAI's shape, Anthropic's or llama-server's. Knows
no route and no stream."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from parkway.api import anthropic_failures, llama_failures
from parkway.errors import (
    BadRequest,
    ChatFailed,
    ContextExceeded,
    EngineDied,
    Overloaded,
    ParkwayError,
    PoolFull,
    ShuttingDown,
)

_INVALID = "invalid_request_error"
_CODES = {401: "invalid_api_key", 413: "request_too_large"}
_SERVER_CODES = {ChatFailed: "chat_failed", PoolFull: "pool_full", EngineDied: "engine_died"}
_DRAINING = {"retry-after": "5"}


def error_body(failure: ParkwayError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`, with the two counts where a prompt was too long."""
    if isinstance(failure, ContextExceeded):
        counts = {"n_prompt_tokens": failure.n_prompt_tokens, "n_ctx": failure.n_ctx}
        return _body(str(failure), failure.type, failure.param, failure.code, **counts)
    if isinstance(failure, BadRequest):
        return _body(str(failure), failure.type, failure.param, failure.code)
    if isinstance(failure, ShuttingDown):
        return _body(str(failure), "unavailable_error", None, "shutting_down")
    if isinstance(failure, Overloaded):
        return _body(str(failure), "rate_limit_error", None, "rate_limit_exceeded")
    return _body(str(failure), "server_error", None, _SERVER_CODES.get(type(failure)))


def status_of(failure: ParkwayError) -> int:
    if isinstance(failure, BadRequest):
        return failure.status
    if isinstance(failure, Overloaded):
        return 429
    return 503 if isinstance(failure, ShuttingDown) else 500


def refusal(status: int, message: str) -> dict[str, Any]:
    """The body of an error that HTTP itself has a status for."""
    return _body(message, _INVALID, None, _CODES.get(status))


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def response(request: Request, body: dict[str, Any], status: int, headers: Mapping[str, str] | None = None) -> Response:
    """To a request that failed: `body`, which is in OpenAI's shape, in the shape that the client expects."""
    if anthropic_failures.spoken(request):
        name = anthropic_failures.request_id(request)
        body = anthropic_failures.told(body["error"], status, name)
        headers = {**(headers or {}), anthropic_failures.HEADER: name}
    elif llama_failures.spoken(request):
        body = llama_failures.told(body["error"], status)
    return json_response(body, status, headers)


def install(app: FastAPI) -> None:
    """Gives every failure of `app` its shape, FastAPI's own and unforeseen ones included."""
    app.add_exception_handler(ParkwayError, _on_parkway_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_body)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_bug)


async def _on_parkway_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, ParkwayError)
    return response(request, error_body(failure), status_of(failure), _headers_of(failure))


async def _on_invalid_body(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, RequestValidationError)
    param, message = _first_complaint(failure.errors())
    return response(request, _body(message, _INVALID, param, None), 400)


async def _on_http_exception(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    message = failure.detail
    if failure.status_code in (404, 405):
        message = f"{request.method} {request.url.path}: {message}"
    return response(request, refusal(failure.status_code, message), failure.status_code, failure.headers)


async def _on_bug(request: Request, _: Exception) -> Response:
    return response(request, _body("internal error", "server_error", None, None), 500)


def _headers_of(failure: ParkwayError) -> Mapping[str, str] | None:
    if isinstance(failure, Overloaded):
        return {"retry-after": str(failure.retry_seconds)}
    return _DRAINING if isinstance(failure, ShuttingDown) else None


def _first_complaint(complaints: Sequence[Any]) -> tuple[str | None, str]:
    """(dotted path of the field, sentence). The path is None where the whole body is at fault."""
    complaint = complaints[0]
    path = complaint["loc"][1:]  # the first part says "body"
    if complaint["type"] == "json_invalid":
        return None, f"the body is not valid JSON: {complaint['ctx']['error']} at character {path[0]}"
    if not path:
        return None, "the body must be a JSON object"
    param = ".".join(map(str, path))
    return param, f"{param}: {complaint['msg'].removeprefix('Value error, ')}"


def _body(message: str, kind: str, param: str | None, code: str | None, **more: int) -> dict[str, Any]:
    # A client may have put a lone surrogate into a name that we quote; JSON can't carry it.
    message = message.encode("utf-8", "replace").decode()
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}
