"""A model that computes no numbers for some chats: each of those ends with an error of its own, the others go on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from parkway import LLM, SamplingParams
from parkway.engine.engine import NO_NUMBERS
from parkway.errors import ChatFailed
from parkway.plan.step import Chunk
from parkway.runner import NOT_FINITE, Sampled
from parkway.runner.edits import Edits
from parkway.text.grammar import grammar_of
from tests.checkpoints import tiny_llama
from tests.engine.toy import ToyRunner, expected, joined, make_request, make_toy, outputs_of

BROKEN, LONG = 7, 150
HOWS: tuple[dict[str, Any], ...] = (
    {},
    {"logprobs": 3},
    {"presence_penalty": 0.5},
    {"prompt_logprobs": 0},
    {"prompt_logprobs": 0, "max_tokens": 0},
    {"embed": "last", "max_tokens": 0},
    {"embed": "mean", "max_tokens": 0},
)


class BrokenRunner(ToyRunner):
    """Has no numbers for the request BROKEN from position LONG on."""

    def _compute(self, chunk: Chunk, edits: Edits | None) -> Sampled:
        found = super()._compute(chunk, edits)
        if chunk.request.id != BROKEN or chunk.end < LONG:
            return found
        scored = [each for each in found.scored if each.position < LONG]
        lost = [type(each)(each.position, NOT_FINITE, 0.0, []) for each in found.scored[len(scored) :]]
        hidden = None if found.hidden is None else found.hidden * np.float32(np.nan)
        return found._replace(token_id=NOT_FINITE if chunk.samples else None, scored=scored + lost, hidden=hidden)


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("prompt_tokens", [LONG - 20, LONG + 30])
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_that_chat_alone_ends_with_an_error(ahead: int, prompt_tokens: int, how: dict[str, Any]) -> None:
    if how.get("max_tokens") == 0:
        prompt_tokens = LONG + 30
    others = [make_request(index, 20 + 30 * index, max_tokens=90, logprobs=0) for index in range(3)]
    broken = make_request(BROKEN, prompt_tokens, **{"max_tokens": 80, "ignore_eos": True} | how)
    engine = make_toy(BrokenRunner(ahead=ahead), chunk_tokens=40)
    outputs = outputs_of(engine, [*others, broken])
    ends = [(output.finish_reason, output.error) for output in outputs.pop(BROKEN) if output.finish_reason]
    assert ends == [("error", NO_NUMBERS)]
    assert not engine._embeddings._sums
    assert {index: joined(each) for index, each in outputs.items()} == {r.id: expected(r, 512) for r in others}


@pytest.fixture(scope="module")
def broken_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output norm is NaN: every logit and hidden state is."""
    path = tiny_llama(tmp_path_factory.mktemp("broken") / "nan.gguf")
    reader = GGUFReader(path, "r+")
    (norm,) = (each for each in reader.tensors if each.name == "output_norm.weight")
    norm.data[:] = np.nan
    reader.data.flush()
    return path


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.0},
        {"logprobs": 3},
        {"grammar": grammar_of("regex", "[a-z]+", "grammar")},
        {"typical_p": 0.5},
        {"mirostat": 2},
        {"repeat_penalty": 1.2},
        {"prompt_logprobs": 2, "max_tokens": 0},
    ],
    ids=str,
)
def test_a_model_of_nan_on_the_cpu(broken_file: Path, how: dict[str, Any]) -> None:
    with LLM(broken_file, ctx_size=256, parallel=2, device="cpu") as llm:
        for _ in range(2):  # the engine lives
            with pytest.raises(ChatFailed, match="not finite"):
                llm.generate("the", SamplingParams(**{"max_tokens": 4} | how))
        with pytest.raises(ChatFailed, match="not finite"):
            llm.embed("the", "mean")
