"""The description of the API at /openapi.json: FastAPI's, with the errors and keys that this server really has."""

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from parkway.api.guard import PUBLIC

_ERRORS = {
    "400": "A field can't be honoured; `param` names it.",
    "401": "No valid API key was sent.",
    "404": "There is no such model, or no such response.",
    "413": "The body is too large.",
    "429": "Too many chats wait; Retry-After tells when to come back.",
    "503": "The model is being loaded, or the server is shutting down.",
}
_UNSUPPORTED = ("/infill", "/sleep", "/slots")
"""Paths with a 501 where the model can't do it, or the server was started without it."""
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def description_of(app: FastAPI, *, keys: bool) -> Callable[[], dict[str, Any]]:
    """What FastAPI calls for the description; it is made once. `keys`: whether clients need one."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app, keys)
        return app.openapi_schema

    return describe


def _described(app: FastAPI, keys: bool) -> dict[str, Any]:
    told = get_openapi(title=app.title, version=app.version, routes=app.routes)
    parts = told.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    for path, operation in _operations(told):
        answers = operation.setdefault("responses", {})
        answers.pop("422", None)
        answers |= {status: _answer(about) for status, about in _ERRORS.items() if keys or status != "401"}
        if path in _UNSUPPORTED:
            answers["501"] = _answer("This server, or its model, can't do that.")
        if _streams(operation, schemas):
            answers["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        if keys and path in PUBLIC:
            operation["security"] = []
    if keys:
        parts["securitySchemes"] = _SCHEMES
        told["security"] = [{name: []} for name in _SCHEMES]
    return told


def _operations(told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in told["paths"].items():
        for operation in operations.values():
            yield path, operation


def _streams(operation: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether its body has a field by which a stream is asked for."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    _, _, name = content.get("schema", {}).get("$ref", "").rpartition("/")
    return "stream" in schemas.get(name, {}).get("properties", {})


def _answer(about: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
