"""OpenAI's error shape for everything that can go wrong over HTTP. Knows no route and no stream."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from parkway.errors import BadRequest, ContextExceeded, EngineDied, ParkwayError, PoolFull, ShuttingDown

_INVALID = "invalid_request_error"


def error_body(failure: ParkwayError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`, with the two counts where a prompt was too long."""
    if isinstance(failure, ContextExceeded):
        counts = {"n_prompt_tokens": failure.n_prompt_tokens, "n_ctx": failure.n_ctx}
        return _body(str(failure), failure.type, failure.param, failure.code, **counts)
    if isinstance(failure, BadRequest):
        return _body(str(failure), failure.type, failure.param, failure.code)
    if isinstance(failure, ShuttingDown):
        return _body(str(failure), "unavailable_error", None, "shutting_down")
    code = "engine_died" if isinstance(failure, EngineDied) else "pool_full" if isinstance(failure, PoolFull) else None
    return _body(str(failure), "server_error", None, code)


def status_of(failure: ParkwayError) -> int:
    if isinstance(failure, BadRequest):
        return failure.status
    return 503 if isinstance(failure, ShuttingDown) else 500


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Gives every failure of `app` its OpenAI shape, FastAPI's own and unforeseen ones included."""
    app.add_exception_handler(ParkwayError, _on_parkway_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_body)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_bug)


async def _on_parkway_error(_: Request, failure: Exception) -> Response:
    assert isinstance(failure, ParkwayError)
    return json_response(error_body(failure), status_of(failure))


async def _on_invalid_body(_: Request, failure: Exception) -> Response:
    assert isinstance(failure, RequestValidationError)
    param, message = _first_complaint(failure.errors())
    return json_response(_body(message, _INVALID, param, None), 400)


async def _on_http_exception(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    message = failure.detail
    if failure.status_code in (404, 405):
        message = f"{request.method} {request.url.path}: {message}"
    return json_response(_body(message, _INVALID, None, None), failure.status_code, failure.headers)


async def _on_bug(_: Request, __: Exception) -> Response:
    return json_response(_body("internal error", "server_error", None, None), 500)


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
