"""OpenAI's endpoints: /v1/chat/completions, /v1/completions and /v1/models. Knows no frame and no token."""

import time
from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.answer import Answer
from parkway.api.bodies import MAX_ANSWERS, ChatBody, CompletionBody
from parkway.api.failures import json_response
from parkway.api.forms import ChatForm, CompletionForm, Style
from parkway.api.responses import Form, StreamedAnswer, WholeAnswer
from parkway.api.serving import Serving
from parkway.errors import BadRequest

router = APIRouter(prefix="/v1")
_STARTED_AT = int(time.time())


def serving_of(request: HttpRequest) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


@router.post("/chat/completions")
async def chat_completions(body: ChatBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    serving.check_model(body.model)
    body.refuse_unbuilt()
    sampling = body.chat_sampling()
    prompt = serving.chat_prompt(body.template_messages())
    answer = serving.begin([prompt], body.n or 1, sampling, priority=body.priority or 0, echo=False)
    return _respond(serving, body, answer, ChatForm(_style(serving, body, bool(body.logprobs)), answer))


@router.post("/completions")
async def completions(body: CompletionBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    serving.check_model(body.model)
    body.refuse_unbuilt()
    sampling = body.completion_sampling()
    choices = body.n or 1
    if len(body.prompt) * choices > MAX_ANSWERS:
        raise BadRequest("prompt", f"prompt and n ask for more than {MAX_ANSWERS} answers")
    prompts = [serving.prompt(each) for each in body.prompt]
    answer = serving.begin(prompts, choices, sampling, priority=body.priority or 0, echo=bool(body.echo))
    form = CompletionForm(_style(serving, body, body.logprobs is not None), answer)
    return _respond(serving, body, answer, form)


@router.get("/models")
async def models(request: HttpRequest) -> Response:
    return json_response({"object": "list", "data": [_model(serving_of(request))]})


@router.get("/models/{name:path}")
async def model(name: str, request: HttpRequest) -> Response:
    serving_of(request).check_model(name)
    return json_response(_model(serving_of(request)))


def _model(serving: Serving) -> dict[str, Any]:
    facts = serving.door.facts
    return {
        "id": serving.model_name,
        "object": "model",
        "created": _STARTED_AT,
        "owned_by": "parkway",
        "max_model_len": facts.n_ctx,
        "meta": {"n_vocab": facts.vocab_size, "size": facts.weight_bytes},
    }


def _style(serving: Serving, body: ChatBody | CompletionBody, logprobs: bool) -> Style:
    return Style(
        model=serving.model_name,
        fingerprint=serving.door.facts.fingerprint,
        tokenizer=serving.text.tokenizer,
        logprobs=logprobs,
        include_usage=body.include_usage,
        notices=body.notices or serving.settings.notices,
    )


def _respond(serving: Serving, body: ChatBody | CompletionBody, answer: Answer, form: Form) -> Response:
    if not body.stream:
        return WholeAnswer(answer, form, serving.leave)
    asked = body.sse_ping_interval
    ping_seconds = serving.settings.sse_ping_interval if asked is None else asked
    return StreamedAnswer(answer, form, serving.leave, ping_seconds)
