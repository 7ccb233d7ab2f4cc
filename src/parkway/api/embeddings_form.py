"""Embeddings as JSON: OpenAI's object, llama-server's list. Knows no engine.

A vector has the Euclidean length 1; one that is cut to fewer dimensions gets it again.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from parkway.api import llama_failures
from parkway.api.answer import Answer
from parkway.api.choice import Delta
from parkway.api.embeddings_body import EmbeddingsBody
from parkway.api.failures import error_body, status_of
from parkway.api.sse import encode
from parkway.engine.embeddings import normalised
from parkway.errors import ParkwayError


class EmbeddingsForm:
    """OpenAI's."""

    def __init__(self, answer: Answer, body: EmbeddingsBody, model: str) -> None:
        self._answer = answer
        self._body = body
        self._model = model

    def body(self, deltas: Sequence[Delta]) -> bytes:
        tokens = self._answer.prompt_tokens
        vectors = enumerate(_vectors(self._answer, self._body))
        told = {
            "object": "list",
            "data": [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors],
            "model": self._model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "preempt": msgspec.structs.asdict(self._answer.preempt),
        }
        return encode(told)

    def failure_body(self, failure: ParkwayError) -> bytes:
        return encode(error_body(failure))


class EmbeddingsList:
    """llama-server's."""

    def __init__(self, answer: Answer, body: EmbeddingsBody) -> None:
        self._answer = answer
        self._body = body

    def body(self, deltas: Sequence[Delta]) -> bytes:
        vectors = enumerate(_vectors(self._answer, self._body))
        return encode([{"index": index, "embedding": [vector]} for index, vector in vectors])

    def failure_body(self, failure: ParkwayError) -> bytes:
        return encode(llama_failures.told(error_body(failure)["error"], status_of(failure)))


def _vectors(answer: Answer, body: EmbeddingsBody) -> list[Any]:
    """One for each input: numbers, or the base64 of their float32, the least significant byte first."""
    vectors = [normalised(choice.embedding, body.dimensions) for choice in answer.choices]
    packed = body.encoding_format == "base64"
    return [b64encode(each.tobytes()).decode() if packed else each.tolist() for each in vectors]
