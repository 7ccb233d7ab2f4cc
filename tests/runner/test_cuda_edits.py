"""Edits on the whole way of a step on the GPU backend: on a GPU, or on the CPU under Triton's interpreter."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parkway.engine.engine import NO_TOKEN
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request, SamplingParams
from parkway.runner import NOTHING_ALLOWED
from parkway.runner.cpu_load import load_on_cpu
from parkway.runner.cuda_load import CudaModel
from parkway.runner.edits import Edits
from parkway.weights import open_checkpoint
from tests.backends.drawn_chains import as_chain, no_edits
from tests.runner.test_cuda_runner import SETTINGS, answers, model, path  # noqa: F401 (fixtures)

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

GREEDY = SamplingParams(max_tokens=2, temperature=0, logprobs=2)
PENALISED = SamplingParams(max_tokens=2, temperature=0, logprobs=2, presence_penalty=60, logit_bias=((47, 50.0),))
BIASED = SamplingParams(max_tokens=2, temperature=0.9, logprobs=0, min_tokens=2, logit_bias=((7, 9.0), (9, 9.0)))
REQUESTS = [
    Request(id=index, prompt=[3, 1, 4, 1, 5], sampling=how, seed=5, stop_ids=frozenset({7}))
    for index, how in enumerate((PENALISED, GREEDY, BIASED))
]


def allowing(*tokens: int) -> Edits:
    """Of 300 or more ids, only these."""
    allowed = np.zeros(1000, np.uint8)
    allowed[list(tokens)] = 1
    mask = np.packbits(allowed[:992], bitorder="little").view(np.uint32)
    empty = np.zeros(0, np.float32)
    return Edits(np.zeros(0, np.int32), empty, empty, empty, mask)


def test_who_has_edits_and_who_has_none_answer_as_alone(model: CudaModel, path: Path) -> None:  # noqa: F811
    """And as on the CPU, as far as the most probable token goes."""
    settings = replace(SETTINGS, parallel=3)
    together = answers(model, REQUESTS, settings)
    for request in (REQUESTS[0], REQUESTS[2]):
        assert answers(model, [request], settings)[request.id] == together[request.id]
    tokens = {i: [token for output in outputs for token in output.token_ids] for i, outputs in together.items()}
    assert [token == 47 for token in tokens[0]] == [True, False], "biased, then penalised"
    assert 47 not in tokens[1]
    assert 7 not in tokens[2]
    cpu = answers(load_on_cpu(open_checkpoint(path), settings), REQUESTS[:2], replace(settings, activations="f32"))
    for i in (0, 1):
        assert [token for output in cpu[i] for token in output.token_ids] == tokens[i]


def test_who_has_a_chain_answers_as_alone(model: CudaModel) -> None:  # noqa: F811
    hows = ({"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 2.0}, {"dry_multiplier": 9.0, "xtc_probability": 0.5})
    requests = [
        replace_sampling(each, max_tokens=2, logprobs=0, **how) for each, how in zip(REQUESTS[:2], hows, strict=True)
    ]
    together = answers(model, requests, replace(SETTINGS, parallel=3))
    assert answers(model, requests[:1], replace(SETTINGS, parallel=3))[0] == together[0]


def test_mirostat_is_told_how_surprising_a_token_was(model: CudaModel) -> None:  # noqa: F811
    runner = model.runner(SETTINGS)
    request = Request(id=0, prompt=[3, 1, 4], sampling=SamplingParams(mirostat=2), seed=1)
    plan = StepPlan((Chunk(0, request, 0, (3, 1, 4), (0,), True),))
    surprises = []
    for mu in (0.0, 50.0):
        runner.launch(plan, {0: no_edits(as_chain([("mirostat_2", mu, 0, 0)]))})
        surprises += [sampled.surprise or 0.0 for _, sampled in runner.land()]
    assert surprises[0] == 0, "there was one token to choose"
    assert 0 < surprises[1] < 50


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs need a GPU")
def test_graphs_with_edits_change_no_bit(model: CudaModel) -> None:  # noqa: F811
    settings = replace(SETTINGS, parallel=3)
    assert answers(model, REQUESTS, replace(settings, cuda_graphs="off")) == answers(model, REQUESTS, settings)


def test_edits_are_of_the_rows_that_they_were_given_for(model: CudaModel) -> None:  # noqa: F811
    """Beside rows that are scored and rows that choose freely; what is reported of a token is what others report."""
    runner = model.runner(replace(SETTINGS, parallel=3))
    how = SamplingParams(temperature=0.7, logprobs=2, prompt_logprobs=0)
    requests = [Request(id=index, prompt=[3, 1, 4], sampling=how, seed=1) for index in range(3)]
    chunks = [Chunk(i, each, 0, (3, 1, 4), (i,), True, scored_rows=(0, 1)) for i, each in enumerate(requests)]
    runner.launch(StepPlan(tuple(chunks)), {2: allowing(11, 200), 0: allowing(42)})
    found = [sampled for _, sampled in runner.land()]
    assert found[0].token_id == 42
    assert found[2].token_id in (11, 200)
    runner.launch(StepPlan(tuple(chunks)))
    plain = [sampled for _, sampled in runner.land()]
    assert found[1] == plain[1]
    assert [each.scored for each in found] == [each.scored for each in plain]
    reported = [each.logprob.top for each in (*found, *plain) if each.logprob]
    assert reported == reported[:1] * 6


def test_what_is_not_allowed_never_comes(model: CudaModel) -> None:  # noqa: F811
    runner = model.runner(SETTINGS)
    request = Request(id=0, prompt=[3, 1, 4], sampling=SamplingParams(), seed=1)
    runner.launch(StepPlan((Chunk(0, request, 0, (3, 1, 4), (0,), True),)), {0: allowing()})
    assert [sampled.token_id for _, sampled in runner.land()] == [NOTHING_ALLOWED]
    nowhere = tuple((token, -math.inf) for token in range(model.vocab_size))
    stuck = replace_sampling(REQUESTS[1], max_tokens=3, logit_bias=nowhere)
    outputs = answers(model, [stuck, REQUESTS[2]])
    (end,) = outputs[stuck.id]
    assert (end.token_ids, end.error) == ([], NO_TOKEN)
    assert outputs[2][-1].error is None


def replace_sampling(request: Request, **how: Any) -> Request:
    return Request(id=request.id, prompt=request.prompt, sampling=SamplingParams(**how), seed=0)
