"""llama-server's error shape. Knows no exception and no route, only where those are that speak so."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

_PATHS = frozenset(
    {
        *("/completion", "/completions", "/infill", "/tokenize", "/detokenize", "/apply-template", "/props"),
        *("/slots", "/lora-adapters", "/sleep", "/models", "/embedding", "/embeddings", "/rerank", "/reranking"),
    }
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


def spoken(request: Request) -> bool:
    """Whether who asks expects llama-server's shapes: at its own paths, which have no version in front."""
    path = request.url.path
    return path in _PATHS or path.startswith("/slots/")


def told(error: Mapping[str, Any], status: int) -> dict[str, Any]:
    """What OpenAI's shape says as `error`, in llama-server's: its code is the status. The field at fault stays."""
    kept = {name: value for name, value in error.items() if name not in ("message", "type", "code")}
    return {"error": {"code": status, "message": error["message"], "type": _TYPES.get(status, error["type"]), **kept}}
