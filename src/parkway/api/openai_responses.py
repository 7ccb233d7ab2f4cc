"""/v1/responses, whose responses nobody keeps, and the count of their tokens. Knows no event and no token."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.failures import json_response
from parkway.api.openai import serving_of
from parkway.api.openai_responses_body import ResponseBody
from parkway.api.openai_responses_form import Manner, ResponseForm
from parkway.api.responses import StreamedAnswer, WholeAnswer
from parkway.errors import BadRequest

router = APIRouter(prefix="/v1/responses")


@router.post("")
async def respond(body: ResponseBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    serving.check_model(body.model)
    body = serving.defaults.filled(body)
    with _messages_called_input():
        ask = await body.ask(serving.text.tokenizer)
        answer = await serving.begin_chat(ask)
    manner = Manner(
        model=serving.model_name,
        tokenizer=serving.text.tokenizer,
        logprobs=body.tells_logprobs,
        notices=body.notices or serving.settings.notices,
        request=body.told(ask.sampling),
    )
    form = ResponseForm(manner, answer)
    if not body.stream:
        return WholeAnswer(answer, form, serving.leave)
    asked = body.sse_ping_interval
    ping_seconds = serving.settings.sse_ping_interval if asked is None else asked
    return StreamedAnswer(answer, form, serving.leave, ping_seconds)


@router.post("/input_tokens")
async def count_tokens(body: ResponseBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    serving.check_model(body.model)
    with _messages_called_input():
        tokens = await serving.chat_tokens(await body.ask(serving.text.tokenizer))
    return json_response({"object": "response.input_tokens", "input_tokens": tokens})


@router.post("/compact")
async def compact() -> Response:
    message = "POST /v1/responses/compact is not supported: leave out of `input` what shall be forgotten"
    raise BadRequest(None, message, code="not_found", status=404)


@router.get("/{response_id}")
@router.delete("/{response_id}")
@router.post("/{response_id}/cancel")
@router.get("/{response_id}/input_items")
async def kept(response_id: str) -> Response:
    message = f"there is no response {response_id[:100]!r}: this server keeps none; a stream ends when it is closed"
    raise BadRequest("response_id", message, code="not_found", status=404)


@contextmanager
def _messages_called_input() -> Iterator[None]:
    """Errors about the messages of a chat name the field that they came in."""
    try:
        yield
    except BadRequest as failure:
        failure.param = "input" if failure.param == "messages" else failure.param
        raise
