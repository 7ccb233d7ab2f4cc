"""llama-server's own endpoints about the server: /props, /slots, /lora-adapters, /sleep, and what is refused there."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from parkway.api.failures import json_response
from parkway.api.llama_bodies import LlamaCompletion
from parkway.api.llama_settings import generation_settings, sampled
from parkway.api.openai import serving_of
from parkway.api.serving import Serving
from parkway.api.sleeping import SleepingDoor
from parkway.errors import BadRequest
from parkway.fingerprint import VERSION
from parkway.report import Facts, SlotView
from parkway.request import Request

router = APIRouter()

_REFUSED = (
    ("/props", "nothing of this server can be changed while it runs"),
    ("/slots/{id_slot}", "slots are not saved, restored or erased: a prompt's pages are found by themselves"),
    ("/lora-adapters", "there are no adapters: the weights are used as they are in the file"),
)
"""What llama-server has and answers with a 501 unless it was started for it."""


def _refuse(path: str, why: str) -> None:
    async def refused() -> Response:
        raise BadRequest(None, f"POST {path} is not supported: {why}", status=501)

    router.add_api_route(path, refused, methods=["POST"], include_in_schema=False)


for _path, _why in _REFUSED:
    _refuse(_path, _why)


@router.get("/props")
async def props(request: HttpRequest) -> Response:
    serving = serving_of(request)
    return json_response(_theirs(serving) | _ours(serving))


@router.get("/slots")
async def slots(request: HttpRequest, fail_on_no_slot: str = "") -> Response:
    """As the engine told them last; a busy engine is not asked."""
    serving = serving_of(request)
    if serving.settings.slots == "off":
        raise BadRequest(None, "--no-slots was given: this server does not tell about its slots", status=501)
    door = serving.door
    known = door.view.slots or [SlotView(index) for index in range(door.facts.slots)]
    if fail_on_no_slot and all(slot.state != "idle" for slot in known):
        raise BadRequest(None, "no slot available", status=503)
    open_requests: dict[int | None, Request] = {each.id: each for each in serving.open_requests}
    return json_response([_slot(slot, door.facts, open_requests.get(slot.request_id)) for slot in known])


@router.get("/lora-adapters")
async def lora_adapters() -> Response:
    return json_response([])


@router.post("/sleep")
async def sleep(request: HttpRequest) -> Response:
    """Ends the engine as soon as no request is open; a 202 says that some still are. The next request wakes it."""
    door = serving_of(request).door
    if not isinstance(door, SleepingDoor):
        raise BadRequest(None, "POST /sleep is not supported: the engine of this server stays", status=501)
    door.sleep_when_idle()
    return json_response({"is_sleeping": door.sleeping}, 200 if door.sleeping else 202)


def _theirs(serving: Serving) -> dict[str, Any]:
    tokenizer, template, facts = serving.text.tokenizer, serving.text.template, serving.door.facts
    return {
        "default_generation_settings": {"n_ctx": facts.n_ctx, "params": _defaults(serving)},
        "total_slots": facts.slots,
        "model_alias": serving.model_name,
        "model_path": serving.text.name,
        "chat_template": template.source if template else "",
        "chat_template_caps": {},
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
        "modalities": {"vision": False, "audio": False, "video": False},
        "endpoint_slots": serving.settings.slots == "on",
        "endpoint_props": False,
        "endpoint_metrics": True,
        "build_info": f"parkway-{VERSION}",
        "is_sleeping": isinstance(serving.door, SleepingDoor) and serving.door.sleeping,
    }


def _ours(serving: Serving) -> dict[str, Any]:
    facts = serving.door.facts
    return {
        "model": serving.model_name,
        "n_ctx": facts.n_ctx,
        "context_shift": facts.shifts,
        "exact_concurrency": facts.exact,
        "bit_check": facts.bit_check,
        "fingerprint": facts.fingerprint,
        "memory": _memory(facts),
        "preempt": _preempt(serving),
    }


def _memory(facts: Facts) -> dict[str, int]:
    return {
        "weight_bytes": facts.weight_bytes,
        "pool_bytes": facts.pool_bytes,
        "state_bytes": facts.state_bytes,
        "checkpoint_bytes": facts.checkpoint_bytes,
        "host_bytes": facts.host_bytes,
    }


def _defaults(serving: Serving) -> dict[str, Any]:
    """Of a completion that asks for nothing but text."""
    body = serving.defaults.filled(LlamaCompletion(prompt=[["-"]])).completed()
    sampling = body.sampling(serving.text.tokenizer)
    return generation_settings(body, sampling, -1 if sampling.seed is None else sampling.seed)


def _preempt(serving: Serving) -> dict[str, Any]:
    engine = serving.engine_settings
    return {
        "mode": engine.preempt,
        "ram_bytes": serving.door.facts.host_bytes,
        "async": engine.preempt_async == "on",
        "resume": engine.preempt_resume,
        "quantum_seconds": engine.preempt_quantum,
        "notices": serving.settings.notices,
    }


def _slot(slot: SlotView, facts: Facts, request: Request | None) -> dict[str, Any]:
    told = {
        "id": slot.id,
        "id_task": -1 if slot.request_id is None else slot.request_id,
        "is_processing": slot.state != "idle",
        "is_preempted": slot.state == "preempted",
        "is_transferring": slot.state in ("preempting", "restoring"),
        "n_preempt": slot.parks,
        "n_recompute": slot.recomputes,
        "n_ctx": facts.n_ctx,
        "speculative": False,
        "n_prompt_tokens": slot.prompt_tokens,
        "n_prompt_tokens_processed": min(slot.computed, slot.prompt_tokens),
        "n_prompt_tokens_cache": slot.cached,
        "n_tokens": slot.tokens,
        "n_pages": slot.pages,
        "state_bytes": facts.state_bytes // facts.slots,
        "state": slot.state,
    }
    return told if request is None else told | _at_work(slot, request)


def _at_work(slot: SlotView, request: Request) -> dict[str, Any]:
    limit, decoded = request.sampling.max_tokens, slot.tokens - slot.prompt_tokens
    next_token = {
        "has_next_token": True,
        "n_remain": -1 if limit is None else max(0, limit - decoded),
        "n_decoded": decoded,
    }
    return {"params": sampled(request.sampling, request.seed), "next_token": [next_token]}
