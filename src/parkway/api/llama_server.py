"""llama-server's own endpoints, in its form: /tokenize, /detokenize and /props. Knows no chat."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict

from parkway.api.bodies import Text
from parkway.api.failures import json_response
from parkway.api.openai import serving_of
from parkway.errors import BadRequest

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
        }
    )


def _piece(piece: bytes) -> Any:
    """Text, or the list of the bytes where they are not whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
