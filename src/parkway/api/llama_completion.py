"""llama-server's endpoints that generate: /completion and /infill. Knows no frame and no token."""

from collections.abc import Sequence
from typing import TypeVar

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.bodies import MAX_ANSWERS
from parkway.api.choice import Prompt
from parkway.api.llama_bodies import Completed, Infill, LlamaCompletion
from parkway.api.llama_form import LlamaForm, Manner
from parkway.api.llama_progress import PromptProgress
from parkway.api.llama_prompts import Mixed, encoded
from parkway.api.llama_settings import generation_settings
from parkway.api.off_loop import off_loop
from parkway.api.openai import serving_of
from parkway.api.responses import StreamedAnswer, WholeAnswer
from parkway.api.serving import Serving
from parkway.errors import BadRequest
from parkway.request import SamplingParams
from parkway.text import infill as gaps

router = APIRouter()
_ANSWER_PART = 4
"""An answer without a limit leaves all but one of so many parts of the context to the prompt of a gap."""

Asked = TypeVar("Asked", bound=Completed)


@router.post("/completion")
@router.post("/completions")
async def completion(body: LlamaCompletion, request: HttpRequest) -> Response:
    serving = serving_of(request)
    body = _filled(serving, body)
    if len(body.prompt) * body.choices > MAX_ANSWERS:
        raise BadRequest("prompt", f"prompt and n_cmpl ask for more than {MAX_ANSWERS} answers")
    sampling = await body.llama_sampling(serving.text.tokenizer)
    return _answered(serving, body, sampling, await off_loop(body.prompt, _prompts, serving, body.prompt))


@router.post("/infill")
async def infill(body: Infill, request: HttpRequest) -> Response:
    serving = serving_of(request)
    tokenizer = serving.text.tokenizer
    gaps.marks_of(tokenizer)
    body = _filled(serving, body)
    sampling = await body.llama_sampling(tokenizer)
    files = [(each.filename, each.text) for each in body.input_extra or ()]
    gap = gaps.Gap(body.input_prefix, body.input_suffix, body.prompt or "", files)
    room = _room(serving.door.facts.n_ctx, sampling.max_tokens)
    ids = await off_loop(gap, gaps.prompt_of, gap, tokenizer, room)
    return _answered(serving, body, sampling, [serving.prompt(ids)])


def _prompts(serving: Serving, asked: Sequence[Mixed]) -> list[Prompt]:
    return [serving.prompt(encoded(each, serving.text.tokenizer) or "") for each in asked]


def _filled(serving: Serving, body: Asked) -> Asked:
    serving.check_model(body.model)
    return serving.defaults.filled(body).completed()


def _room(n_ctx: int, limit: int | None) -> int:
    """For the prompt: what the answer leaves of the context, half of it at least."""
    return n_ctx - min(n_ctx // _ANSWER_PART if limit is None else max(limit, 1), n_ctx // 2)


def _answered(serving: Serving, body: Completed, sampling: SamplingParams, prompts: list[Prompt]) -> Response:
    answer = serving.begin(
        prompts,
        body.choices,
        sampling,
        priority=body.priority or 0,
        stop_ids=body.stop_ids(serving.text.tokenizer),
    )
    form = LlamaForm(_manner(serving, body, sampling, answer.seed), answer)
    if not body.stream:
        return WholeAnswer(answer, form, serving.leave)
    if body.return_progress:
        PromptProgress(serving.door, answer)
    asked = body.sse_ping_interval
    ping_seconds = serving.settings.sse_ping_interval if asked is None else asked
    return StreamedAnswer(answer, form, serving.leave, ping_seconds)


def _manner(serving: Serving, body: Completed, sampling: SamplingParams, seed: int) -> Manner:
    door = serving.door

    def slot_of(request_id: int) -> int:
        return next((slot.id for slot in door.view.slots if slot.request_id == request_id), -1)

    return Manner(
        model=serving.model_name,
        tokenizer=serving.text.tokenizer,
        settings=generation_settings(body, sampling, seed),
        n_ctx=door.facts.n_ctx,
        shifts=door.facts.shifts,
        notices=body.notices or serving.settings.notices,
        slot_of=slot_of,
        timing=bool(body.timings_per_token),
        tokens=bool(body.return_tokens),
        fields=body.response_fields or (),
    )
