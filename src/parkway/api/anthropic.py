"""Anthropic's endpoints: /v1/messages and its count_tokens. Knows no frame and no token.

A client of Anthropic's asks for their models by name, several of them where it has smaller ones for small tasks. So any
name of theirs means the model that is served here; other names must be its own, as everywhere.
"""

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.anthropic_bodies import CountBody, MessagesBody
from parkway.api.anthropic_failures import HEADER, PATH, request_id
from parkway.api.anthropic_form import Manner, MessageForm
from parkway.api.failures import json_response
from parkway.api.openai import serving_of
from parkway.api.responses import StreamedAnswer, WholeAnswer
from parkway.api.serving import Serving

router = APIRouter(prefix=PATH)
_THEIRS = "claude-"


@router.post("")
async def messages(body: MessagesBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    _check_model(serving, body.model)
    body = serving.defaults.filled(body)
    answer = await serving.begin_chat(await body.ask(serving.text.tokenizer))
    name = request_id(request)
    manner = Manner(
        model=serving.model_name,
        request_id=name,
        max_tokens=body.max_tokens,
        notices=body.notices or serving.settings.notices,
        thoughts=body.tells_thoughts,
    )
    form, headers = MessageForm(manner, answer), [(HEADER.encode(), name.encode())]
    if not body.stream:
        return WholeAnswer(answer, form, serving.leave, headers)
    asked = body.sse_ping_interval
    ping_seconds = serving.settings.sse_ping_interval if asked is None else asked
    return StreamedAnswer(answer, form, serving.leave, ping_seconds, headers)


@router.post("/count_tokens")
async def count_tokens(body: CountBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    _check_model(serving, body.model)
    tokens = await serving.chat_tokens(await body.ask(serving.text.tokenizer))
    return json_response({"input_tokens": tokens}, headers={HEADER: request_id(request)})


def _check_model(serving: Serving, name: str | None) -> None:
    if name is None or not name.startswith(_THEIRS):
        serving.check_model(name)
