"""Embeddings of the CPU's kernels: near the reference, and the same bits whatever the traffic."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from parkway.backends.reference import Floats, ReferenceMatrix, ReferenceOps, ReferencePack
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.models import build_model
from parkway.plan.limits import Knobs
from parkway.request import Output, Pooling, Request, SamplingParams
from parkway.runner.load import load_model
from parkway.weights import open_checkpoint
from tests.checkpoints import FAMILIES, tiny_gguf, tiny_llama
from tests.models.runs import step_of

POOLINGS: tuple[Pooling, ...] = ("last", "mean")
TOKENS = 150


def request(request_id: int, length: int, **sampling: Any) -> Request:
    prompt = [(request_id % 2 * 71 + i * 37 + i // 7) % 256 for i in range(length)]
    return Request(id=request_id, prompt=prompt, sampling=SamplingParams(**sampling), seed=request_id)


def asked(length: int = TOKENS) -> list[Request]:
    """Both ways of one prompt: its first pages are found by the second unless it computes all of it."""
    return [request(2 * i, length, max_tokens=0, embed=how) for i, how in enumerate(POOLINGS)]


def others(count: int) -> list[Request]:
    return [request(11 + i, 60 + i, max_tokens=120 + i, temperature=0.0, ignore_eos=True) for i in range(count)]


def embeddings(
    path: Path, requests: list[Request], settings: Mapping[str, Any] = MappingProxyType({}), **limits: Any
) -> tuple[dict[int, bytes], int]:
    """Those that came, by request, and how many chats were parked."""
    how = EngineSettings(**{"device": "cpu", "ctx_size": 1024, "threads": 1, **settings})
    engine = make_engine(load_model(path, how), how, **limits)
    for each in requests:
        engine.arrive(each)
    outputs: dict[int, list[Output]] = defaultdict(list)
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else ():
            outputs[output.request_id].append(output)
    parks = engine.snapshot.parks
    engine.close()
    return {i: made[-1].embedding for i, made in outputs.items() if made[-1].embedding}, parks


class Hidden(ReferenceOps):
    """Stops where the output matrix begins."""

    def logits(self, x: Floats, head: ReferenceMatrix, soft_cap: float = 0.0) -> Floats:
        return x


def reference(path: Path, activations: str) -> dict[Pooling, Floats]:
    model = build_model(open_checkpoint(path), ReferencePack())
    ops = Hidden(model.config.kv, activations)
    ops.step = step_of([(0, position) for position in range(TOKENS)])
    rows = np.asarray(model.forward(ops))
    return {"last": rows[-1], "mean": rows.mean(axis=0)}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_embedding_is_the_normed_state_before_the_output_matrix(tmp_path: Path, family: str) -> None:
    path = tiny_gguf(tmp_path / "model.gguf", FAMILIES[family], types=("F32",))
    found, _ = embeddings(path, asked(), {"activations": "f32"})
    exact = reference(path, "f32")
    for i, how in enumerate(POOLINGS):
        assert np.frombuffer(found[2 * i], np.float32) == pytest.approx(exact[how], abs=1e-4)
    assert exact["last"] != pytest.approx(exact["mean"], abs=0.1)


def test_a_state_is_not_rounded_to_the_bits_that_the_output_matrix_takes(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "model.gguf", types=("Q8_0",))
    found, _ = embeddings(path, asked())
    exact = reference(path, "int8")
    for i, how in enumerate(POOLINGS):
        ours = np.frombuffer(found[2 * i], np.float32)
        assert np.linalg.norm(ours - exact[how]) < 0.03 * np.linalg.norm(exact[how])
    assert len(set(np.frombuffer(found[0], np.float32).tolist())) == 64  # of 8 bits some would be equal


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, {"chunk_tokens": 1}),
        ({}, {"chunk_tokens": 7, "prefix_cache": False}),
        ({"batch_size": 16, "parallel": 16}, {}),
        ({"threads": 2}, {"chunk_tokens": 100}),
        ({"ctx_size": 512}, {"chunk_tokens": 5, "knobs": Knobs(park_every=5, forget=True)}),
        ({"ctx_size": 512, "preempt": "recompute"}, {"chunk_tokens": 3, "knobs": Knobs(victim="youngest")}),
        ({"ctx_size": 512}, {"chunk_tokens": 3, "knobs": Knobs(victim="youngest")}),
    ],
    ids=str,
)
def test_the_bits_are_those_of_each_alone(tmp_path: Path, settings: dict[str, Any], limits: dict[str, Any]) -> None:
    path = tiny_llama(tmp_path / "model.gguf")
    alone = {i: bits for each in asked() for i, bits in embeddings(path, [each])[0].items()}
    first, second = asked()
    found, parks = embeddings(path, [*others(2), first, second, *others(5)[2:]], settings, **limits)
    assert found == alone
    assert (parks > 0) == (settings.get("ctx_size") == 512)
