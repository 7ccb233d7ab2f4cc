"""The HTTP application: its routes, its errors, /health and /metrics. Knows no socket and no process."""

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Receive, Scope, Send

from parkway.api import failures, llama_server, openai
from parkway.api.serving import Serving
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.door import Door
from parkway.text import ModelText


def create_app(door: Door, text: ModelText, engine_settings: EngineSettings, settings: ServerSettings) -> FastAPI:
    """The application over an open door, whose sinks must run on the event loop that serves the application.

    `engine_settings` are those that the door's engine was built from.
    """
    app = FastAPI(title="Parkway")
    app.add_middleware(JsonWhateverItIsCalled)
    app.state.serving = Serving(door, text, engine_settings, settings)
    failures.install(app)
    app.include_router(openai.router)
    app.include_router(llama_server.router)
    app.add_api_route("/health", _health, methods=["GET"])
    app.add_api_route("/metrics", _metrics, methods=["GET"])
    return app


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


async def _metrics(request: Request) -> Response:
    page = openai.serving_of(request).metrics.page()
    return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})
