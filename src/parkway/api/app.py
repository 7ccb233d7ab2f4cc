"""The HTTP application: its routes, its errors, /health and /metrics. Knows no socket and no process."""

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from parkway.api import (
    anthropic,
    embeddings,
    failures,
    llama_completion,
    llama_props,
    llama_server,
    openai,
    openai_responses,
)
from parkway.api.guard import guarded
from parkway.api.openapi import description_of
from parkway.api.serving import Serving
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.door import Door
from parkway.fingerprint import VERSION
from parkway.text import ModelText

_HEALTH = ("/health", "/v1/health")
_LOADING = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
_SOON = {"retry-after": "1"}


def create_app(door: Door, text: ModelText, engine_settings: EngineSettings, settings: ServerSettings) -> FastAPI:
    """The application over an open door, whose sinks must run on the event loop that serves the application.

    `engine_settings` are those that the door's engine was built from.
    """
    # FastAPI's pages about the API load scripts from elsewhere; they would run where the API key is typed in.
    app = FastAPI(title="Parkway", version=VERSION, docs_url=None, redoc_url=None)
    app.add_middleware(JsonWhateverItIsCalled)
    app.state.serving = serving = Serving(door, text, engine_settings, settings)
    failures.install(app)
    app.include_router(openai.router)
    app.include_router(openai_responses.router)
    app.include_router(embeddings.router)
    app.include_router(anthropic.router)
    app.include_router(llama_server.router)
    app.include_router(llama_completion.router)
    app.include_router(llama_props.router)
    for path, page in (("/", _welcome), *((path, _health) for path in _HEALTH)):
        app.add_api_route(path, page, methods=["GET"])
        app.add_api_route(path, page, methods=["HEAD"], include_in_schema=False)
    app.add_api_route("/metrics", _metrics, methods=["GET"], response_class=PlainTextResponse)
    app.openapi = description_of(app, keys=bool(settings.api_keys))  # type: ignore[method-assign]
    app.middleware_stack = guarded(app.build_middleware_stack(), settings, serving.metrics.count_request)
    return app


def loading_app(settings: ServerSettings) -> ASGIApp:
    """What answers until there is a model: llama-server's words for that, and a health that is not ok."""
    return guarded(_still_loading, settings, lambda route, method, status: None)


async def _still_loading(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope)
    if scope["path"] in _HEALTH:
        told = failures.json_response({"status": "loading model"}, 503, _SOON)
    else:
        told = failures.response(request, {"error": _LOADING}, 503, _SOON)
    await told(scope, receive, send)


class JsonWhateverItIsCalled:
    """Takes every body for JSON, as llama-server does: curl's own content type for -d is that of a form."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
            scope["headers"] = [*others, (b"content-type", b"application/json")]
        await self._app(scope, receive, send)


async def _health(request: Request) -> Response:
    if openai.serving_of(request).draining:
        return failures.json_response({"status": "draining"}, 503)
    return failures.json_response({"status": "ok"})


async def _welcome(request: Request) -> Response:
    return failures.json_response({"name": "Parkway", "version": VERSION, "api": "/openapi.json", "health": "/health"})


async def _metrics(request: Request) -> Response:
    page = openai.serving_of(request).metrics.page()
    return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})
