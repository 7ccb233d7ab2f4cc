"""The library: a model in this process, asked with text and answering with text. Knows no HTTP."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from parkway.config import EngineSettings
from parkway.engine.build import build_engine
from parkway.engine.door import ThreadDoor
from parkway.engine.embeddings import normalised
from parkway.errors import BadRequest, ContextExceeded
from parkway.request import Output, Pooling, Preempt, Request, SamplingParams, TokenLogprob
from parkway.text import ModelText, TextStream, Tokenizer
from parkway.text.grammar import vocabulary_of
from parkway.weights import default_model

SEED_BITS = 63

Prompts = str | list[int] | Sequence[str | list[int]]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. `text` has no special tokens and ends before a stop string; `token_ids` are those that made it.

    The log-probabilities are there if they were asked for: one entry per token of the answer, and one per token of
    the prompt but the first. finish_reason is "stop" or "length". `seed` brings the same answer again. `cached_tokens`
    of the prompt were found and not computed, and `preempt` says how often the chat was parked, and how long it was
    away; two answers are equal whatever these are.
    """

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob]
    prompt_logprobs: list[TokenLogprob]
    finish_reason: str
    seed: int
    cached_tokens: int = field(compare=False)
    preempt: Preempt = field(compare=False)


class LLM:
    """A model file or folder, loaded; None is the default model. `settings` are the fields of EngineSettings.

    Raises StartError. May be used from several threads; also a context manager. close() gives the memory back.
    """

    def __init__(self, model: str | Path | None = None, **settings: Any) -> None:
        path = default_model.fetch() if model is None else Path(model)
        self._text = ModelText.from_path(path)
        self._door = ThreadDoor(build_engine(path, EngineSettings(**settings)))

    def generate(self, prompts: Prompts, params: SamplingParams | None = None) -> list[Completion]:
        """Answer one prompt or many at once, in their order. A prompt is a text or token ids.

        All prompts share one seed and differ by their index.
        Raises BadRequest, ContextExceeded, ChatFailed, EngineDied.
        """
        return self._completed([self._ids(prompt) for prompt in _listed(prompts)], params)

    def embed(
        self, texts: Prompts, pooling: Pooling | None = None, dimensions: int | None = None
    ) -> npt.NDArray[np.float32]:
        """A row of the Euclidean length 1 for each text (or list of token ids), in their order.

        `pooling`: of the last token, or the mean over all; None: as the file says. `dimensions`: so many of the
        numbers; None: all. Raises BadRequest, ContextExceeded, ChatFailed, EngineDied.
        """
        width = self._door.facts.embedding_width
        wanted = width if dimensions is None else dimensions
        if not 1 <= wanted <= width:
            raise BadRequest("dimensions", f"dimensions is {wanted}, but this model's embeddings have {width}")
        how = pooling or self._text.pooling
        if how is None:
            raise BadRequest("pooling", "this model's file asks for a pooling that is not supported: name one")
        ids = [self._ids(text, ends=True) for text in _listed(texts)]
        answers = self._answer(ids, SamplingParams(max_tokens=0, embed=how))
        rows = [normalised(answer.embedding, wanted) for answer in answers]
        return np.array(rows, np.float32).reshape(-1, wanted)

    def chat(self, messages: Sequence[Mapping[str, Any]], params: SamplingParams | None = None) -> Completion:
        """Answer one conversation, by the model's chat template. Raises like generate."""
        return self._completed([self._checked(self._text.chat_prompt(messages), "messages")], params)[0]

    def close(self) -> None:
        """End the engine. Whoever still waits for an answer gets EngineDied."""
        self._door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ids(self, prompt: str | list[int], *, ends: bool = False) -> list[int]:
        """`ends`: nothing will follow."""
        tokenizer = self._text.tokenizer
        if not isinstance(prompt, str):
            return self._checked(list(prompt), "prompt")
        return self._checked(
            tokenizer.whole(prompt) if ends else tokenizer.with_bos(tokenizer.encode(prompt)), "prompt"
        )

    def _checked(self, ids: list[int], param: str) -> list[int]:
        facts = self._door.facts
        if not ids:
            raise BadRequest(param, f"{param} is empty")
        if len(ids) >= facts.n_ctx:
            raise ContextExceeded(len(ids), facts.n_ctx, param)
        if min(ids) < 0 or max(ids) >= facts.vocab_size:
            raise BadRequest(param, f"{param} holds a token id that is not between 0 and {facts.vocab_size - 1}")
        return ids

    def _completed(self, prompts: list[list[int]], params: SamplingParams | None) -> list[Completion]:
        return [answer.completion for answer in self._answer(prompts, params or SamplingParams())]

    def _answer(self, prompts: list[list[int]], sampling: SamplingParams) -> "list[_Answer]":
        seed = secrets.randbits(SEED_BITS) if sampling.seed is None else sampling.seed
        stop_ids = self._text.tokenizer.stop_ids
        if sampling.grammar is not None:
            self._door.teach(lambda: vocabulary_of(self._text.tokenizer))
        requests = [
            Request(
                id=self._door.next_id(), prompt=ids, sampling=sampling, seed=seed, stop_ids=stop_ids, prompt_index=index
            )
            for index, ids in enumerate(prompts)
        ]
        answers = {request.id: _Answer(request, self._text.tokenizer) for request in requests}
        self._receive(answers)
        return list(answers.values())

    def _receive(self, answers: dict[int, "_Answer"]) -> None:
        arrived: SimpleQueue[Output] = SimpleQueue()
        still_open = set(answers)
        try:
            for answer in answers.values():
                self._door.submit(answer.request, arrived.put)
            while still_open:
                output = arrived.get()
                if output.request_id in still_open and answers[output.request_id].take(output):
                    still_open.remove(output.request_id)
                    self._door.cancel(output.request_id)  # for a stop string; otherwise it has ended already
        finally:
            for request_id in still_open:
                self._door.cancel(request_id)


class _Answer:
    """An answer while it grows."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self.request = request
        self.embedding = b""
        self._stream = TextStream(tokenizer, request.sampling.stop)
        self._pieces: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt_logprobs: list[TokenLogprob] = []
        self._finish_reason: str | None = None
        self._cached_tokens = 0
        self._preempt = Preempt()

    @property
    def completion(self) -> Completion:
        reason = self._finish_reason
        assert reason is not None, "the answer has not ended"
        return Completion(
            text="".join(self._pieces),
            token_ids=self._token_ids,
            logprobs=self._logprobs,
            prompt_logprobs=self._prompt_logprobs,
            finish_reason=reason,
            seed=self.request.seed,
            cached_tokens=self._cached_tokens,
            preempt=self._preempt,
        )

    def take(self, output: Output) -> str | None:
        """Add what has come; returns why that ended the answer, if so. Raises ChatFailed, EngineDied, PoolFull."""
        if output.finish_reason == "error":
            raise output.failure
        self._prompt_logprobs += output.prompt_logprobs
        self._cached_tokens += output.cached_tokens
        self._preempt = self._preempt.after(output.notice) if output.notice else self._preempt
        for index, token_id in enumerate(output.token_ids):
            self._token_ids.append(token_id)
            self._logprobs += output.logprobs[index : index + 1]
            self._pieces.append(self._stream.push(token_id))
            if self._stream.stopped:
                break
        if output.finish_reason is not None:
            self._pieces.append(self._stream.finish())
            self.embedding, self._preempt = output.embedding, output.preempt
        self._finish_reason = "stop" if self._stream.stopped else output.finish_reason
        return self._finish_reason


def _listed(prompts: Prompts) -> list[str | list[int]]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [cast(str | list[int], prompts)]
    return list(cast(Sequence[str | list[int]], prompts))
