"""OpenAI's endpoints: /v1/chat/completions, /v1/completions and /v1/models. Knows no frame and no token."""

import time
from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.answer import Answer
from parkway.api.chat_body import ChatBody
from parkway.api.completion_body import CompletionBody
from parkway.api.failures import json_response
from parkway.api.forms import Style
from parkway.api.forms_chat import ChatForm
from parkway.api.forms_completion import CompletionForm
from parkway.api.off_loop import off_loop
from parkway.api.responses import Form, StreamedAnswer, WholeAnswer
from parkway.api.sampling_fields import Sampled
from parkway.api.serving import Serving

router = APIRouter(prefix="/v1")
_STARTED_AT = int(time.time())


def serving_of(request: HttpRequest) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


@router.post("/chat/completions")
async def chat_completions(body: ChatBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    serving.check_model(body.model)
    body = serving.defaults.filled(body)
    template = serving.text.template
    ask = await body.ask(serving.text.tokenizer, template.source if template else "")
    answer = await serving.begin_chat(ask)
    style = _style(serving, body, logprobs=bool(body.logprobs), thoughts=body.include_reasoning is not False)
    return _respond(serving, body, answer, ChatForm(style, answer))


@router.post("/chat/completions/input_tokens")
async def chat_tokens(body: ChatBody, request: HttpRequest) -> Response:
    """llama-server's count."""
    serving = serving_of(request)
    serving.check_model(body.model)
    template = serving.text.template
    ask = await body.ask(serving.text.tokenizer, template.source if template else "")
    return json_response({"input_tokens": await serving.chat_tokens(ask)})


@router.post("/completions")
async def completions(body: CompletionBody, request: HttpRequest) -> Response:
    serving = serving_of(request)
    serving.check_model(body.model)
    body = serving.defaults.filled(body)
    tokenizer = serving.text.tokenizer
    sampling, stop_ids = await body.completion_sampling(tokenizer), body.stop_ids(tokenizer)
    prompts = await off_loop(body.prompt, lambda: [serving.prompt(each) for each in body.prompt])
    answer = serving.begin(
        prompts, body.n or 1, sampling, priority=body.priority or 0, stop_ids=stop_ids, echo=bool(body.echo)
    )
    form = CompletionForm(_style(serving, body, logprobs=body.logprobs is not None), answer)
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


def _style(serving: Serving, body: Sampled, *, logprobs: bool, thoughts: bool = True) -> Style:
    options = body.stream_options
    return Style(
        model=serving.model_name,
        fingerprint=serving.door.facts.fingerprint,
        tokenizer=serving.text.tokenizer,
        logprobs=logprobs,
        include_usage=bool(options and options.include_usage),
        notices=body.notices or serving.settings.notices,
        counting=bool(options and options.include_usage and options.continuous_usage_stats),
        timing=bool(body.timings_per_token),
        thoughts=thoughts,
    )


def _respond(serving: Serving, body: Sampled, answer: Answer, form: Form) -> Response:
    if not body.stream:
        return WholeAnswer(answer, form, serving.leave)
    asked = body.sse_ping_interval
    ping_seconds = serving.settings.sse_ping_interval if asked is None else asked
    return StreamedAnswer(answer, form, serving.leave, ping_seconds)
