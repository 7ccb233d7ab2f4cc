"""llama-server's own endpoints, in its form: /tokenize, /detokenize, /props and /slots. Knows no chat."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict

from parkway.api.bodies import Text
from parkway.api.failures import json_response
from parkway.api.openai import serving_of
from parkway.api.serving import Serving
from parkway.errors import BadRequest
from parkway.request import SlotView

router = APIRouter()


class TokenizeBody(BaseModel):
    model_config = ConfigDict(strict=True)

    content: Text
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(BaseModel):
    model_config = ConfigDict(strict=True)

    tokens: list[int]


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, request: HttpRequest) -> Response:
    tokenizer = serving_of(request).text.tokenizer
    ids = (tokenizer.encode if body.parse_special else tokenizer.encode_plain)(body.content)
    if body.add_special:
        ids = tokenizer.with_bos(ids)
    if not body.with_pieces:
        return json_response({"tokens": ids})
    return json_response({"tokens": [{"id": i, "piece": _piece(tokenizer.piece_bytes(i))} for i in ids]})


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, request: HttpRequest) -> Response:
    tokenizer = serving_of(request).text.tokenizer
    if body.tokens and not 0 <= min(body.tokens) <= max(body.tokens) < tokenizer.vocab_size:
        raise BadRequest("tokens", f"tokens must be between 0 and {tokenizer.vocab_size - 1}")
    return json_response({"content": tokenizer.decode(body.tokens)})


@router.get("/props")
async def props(request: HttpRequest) -> Response:
    serving = serving_of(request)
    facts = serving.door.facts
    return json_response(
        {
            "model": serving.model_name,
            "n_ctx": facts.n_ctx,
            "total_slots": facts.slots,
            "exact_concurrency": facts.exact,
            "bit_check": facts.bit_check,
            "fingerprint": facts.fingerprint,
            "preempt": _preempt(serving),
        }
    )


@router.get("/slots")
async def slots(request: HttpRequest) -> Response:
    """As the engine told them last; a busy engine is not asked."""
    door = serving_of(request).door
    known = door.view.slots or [SlotView(index) for index in range(door.facts.slots)]
    return json_response([_slot(slot, door.facts.n_ctx) for slot in known])


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


def _slot(slot: SlotView, n_ctx: int) -> dict[str, Any]:
    return {
        "id": slot.id,
        "id_task": -1 if slot.request_id is None else slot.request_id,
        "is_processing": slot.state != "idle",
        "is_preempted": slot.state == "preempted",
        "is_transferring": slot.state in ("preempting", "restoring"),
        "n_preempt": slot.parks,
        "n_recompute": slot.recomputes,
        "n_ctx": n_ctx,
        "n_prompt_tokens": slot.prompt_tokens,
        "n_tokens": slot.tokens,
        "n_pages": slot.pages,
        "state": slot.state,
    }


def _piece(piece: bytes) -> Any:
    """Text, or the list of the bytes where they are not whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
