"""The HTTP application: its routes, its errors, /health and /metrics. Knows no socket and no process."""

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from parkway.api import failures, llama_server, openai
from parkway.api.serving import Serving
from parkway.config import ServerSettings
from parkway.engine.door import Door
from parkway.text import ModelText


def create_app(door: Door, text: ModelText, settings: ServerSettings) -> FastAPI:
    """The application over an open door, whose sinks must run on the event loop that serves the application."""
    app = FastAPI(title="Parkway")
    app.state.serving = Serving(door, text, settings)
    failures.install(app)
    app.include_router(openai.router)
    app.include_router(llama_server.router)
    app.add_api_route("/health", _health, methods=["GET"])
    app.add_api_route("/metrics", _metrics, methods=["GET"])
    return app


async def _health(request: Request) -> Response:
    if openai.serving_of(request).draining:
        return failures.json_response({"status": "draining"}, 503)
    return failures.json_response({"status": "ok"})


async def _metrics(request: Request) -> Response:
    page = openai.serving_of(request).metrics.page()
    return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})
