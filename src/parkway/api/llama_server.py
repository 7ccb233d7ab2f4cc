"""Endpoints for text: llama-server's /tokenize, /detokenize and /apply-template, which speak as vLLM's too, and vLLM's
/tokenizer_info. Knows no slot and no answer."""

from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict

from parkway.api.bodies import Text
from parkway.api.chat_body import ChatBody
from parkway.api.failures import json_response
from parkway.api.llama_prompts import Content
from parkway.api.off_loop import off_loop
from parkway.api.openai import chat_completions, models, serving_of
from parkway.api.serving import Serving
from parkway.errors import BadRequest
from parkway.text import Tokenizer

router = APIRouter()
router.add_api_route("/models", models, methods=["GET"], operation_id="llama_models")
router.add_api_route("/chat/completions", chat_completions, methods=["POST"], operation_id="llama_chat_completions")


class TokenizeBody(BaseModel):
    """`content` with the next three, as llama-server has them, or `prompt` with `add_special_tokens`, as vLLM has."""

    model_config = ConfigDict(strict=True, extra="allow")

    content: Content = []
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    prompt: Text | None = None
    add_special_tokens: bool = True

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        if self.prompt is not None:
            ids = tokenizer.encode(self.prompt)
            return tokenizer.with_bos(ids) if self.add_special_tokens else ids
        encode = tokenizer.encode if self.parse_special else tokenizer.encode_plain
        ids = [i for part in self.content for i in (encode(part) if isinstance(part, str) else [part])]
        _check(ids, "content", tokenizer)
        return tokenizer.with_bos(ids) if self.add_special else ids

    def refuse(self) -> None:
        """Raises BadRequest unless there is one text, and for what vLLM has and this has not."""
        extra = self.model_extra or {}
        if extra.get("messages") is not None:
            raise BadRequest("messages", "messages is not supported; send what /apply-template makes of it as content")
        if extra.get("return_token_strs"):
            raise BadRequest("return_token_strs", "return_token_strs is not supported; send content with with_pieces")
        if (self.prompt is not None) == ("content" in self.model_fields_set):
            which = "content" if self.prompt is None else "prompt"
            raise BadRequest(which, "send either content or prompt")


class DetokenizeBody(BaseModel):
    model_config = ConfigDict(strict=True)

    tokens: list[int]


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, request: HttpRequest) -> Response:
    body.refuse()
    serving = serving_of(request)
    return await off_loop((body.content, body.prompt), _tokenized, body, serving)


def _tokenized(body: TokenizeBody, serving: Serving) -> Response:
    tokenizer = serving.text.tokenizer
    ids = body.ids(tokenizer)
    if body.prompt is not None:
        return json_response({"tokens": ids, "count": len(ids), "max_model_len": serving.door.facts.n_ctx})
    if not body.with_pieces:
        return json_response({"tokens": ids})
    # Each token once: the collector of garbage stops all threads for as long as it looks through millions of objects.
    told = {i: {"id": i, "piece": _piece(tokenizer.piece_bytes(i))} for i in set(ids)}
    return json_response({"tokens": [told[i] for i in ids]})


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, request: HttpRequest) -> Response:
    """The text under both names: llama-server's and vLLM's."""
    return await off_loop(body.tokens, _detokenized, body.tokens, serving_of(request).text.tokenizer)


def _detokenized(ids: list[int], tokenizer: Tokenizer) -> Response:
    _check(ids, "tokens", tokenizer)
    text = tokenizer.decode(ids)
    return json_response({"content": text, "prompt": text})


@router.get("/tokenizer_info")
async def tokenizer_info(request: HttpRequest) -> Response:
    """vLLM's: what a client needs to know of the tokenizer beside its ids. null for what the model has not."""
    text = serving_of(request).text
    told = {"bos_token": text.tokenizer.bos_token, "eos_token": text.tokenizer.eos_token}
    told["chat_template"] = text.template.source if text.template else ""
    return json_response({name: value or None for name, value in told.items()})


@router.post("/apply-template")
async def apply_template(body: ChatBody, request: HttpRequest) -> Response:
    """The prompt of a chat as text, with every field that has a say in it."""
    serving = serving_of(request)
    template = serving.text.template
    ask = await body.ask(serving.text.tokenizer, template.source if template else "")
    return json_response({"prompt": await serving.chat_text(ask)})


def _check(ids: list[int], param: str, tokenizer: Tokenizer) -> None:
    if ids and not 0 <= min(ids) <= max(ids) < tokenizer.vocab_size:
        raise BadRequest(param, f"{param} must be between 0 and {tokenizer.vocab_size - 1}")


def _piece(piece: bytes) -> Any:
    """Text, or the list of the bytes where they are not whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
