"""llama-server's own endpoints for text: /tokenize, /detokenize, /apply-template. Knows no slot and no answer."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict

from parkway.api.chat_body import ChatBody
from parkway.api.failures import json_response
from parkway.api.llama_prompts import Content
from parkway.api.openai import chat_completions, models, serving_of
from parkway.errors import BadRequest
from parkway.text import Tokenizer

router = APIRouter()
router.add_api_route("/models", models, methods=["GET"], operation_id="llama_models")
router.add_api_route("/chat/completions", chat_completions, methods=["POST"], operation_id="llama_chat_completions")


class TokenizeBody(BaseModel):
    model_config = ConfigDict(strict=True)

    content: Content
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        encode = tokenizer.encode if self.parse_special else tokenizer.encode_plain
        ids = [i for part in self.content for i in (encode(part) if isinstance(part, str) else [part])]
        _check(ids, "content", tokenizer)
        return tokenizer.with_bos(ids) if self.add_special else ids


class DetokenizeBody(BaseModel):
    model_config = ConfigDict(strict=True)

    tokens: list[int]


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, request: HttpRequest) -> Response:
    tokenizer = serving_of(request).text.tokenizer
    ids = body.ids(tokenizer)
    if not body.with_pieces:
        return json_response({"tokens": ids})
    return json_response({"tokens": [{"id": i, "piece": _piece(tokenizer.piece_bytes(i))} for i in ids]})


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, request: HttpRequest) -> Response:
    tokenizer = serving_of(request).text.tokenizer
    _check(body.tokens, "tokens", tokenizer)
    return json_response({"content": tokenizer.decode(body.tokens)})


@router.post("/apply-template")
async def apply_template(body: ChatBody, request: HttpRequest) -> Response:
    """The prompt of a chat as text, with every field that has a say in it."""
    serving = serving_of(request)
    template = serving.text.template
    ask = await body.ask(serving.text.tokenizer, template.source if template else "")
    return json_response({"prompt": serving.chat_text(ask)})


def _check(ids: list[int], param: str, tokenizer: Tokenizer) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < tokenizer.vocab_size:
        raise BadRequest(param, f"{param} must be between 0 and {tokenizer.vocab_size - 1}")


def _piece(piece: bytes) -> Any:
    """Text, or the list of the bytes where they are not whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
