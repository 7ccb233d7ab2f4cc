"""The head that drafts the token after next: loaded from either format into what the kernels read, refused by name
where it is not whole, and right: what a family's own parts draft with it is what a textbook pass drafts."""

import ctypes as C
import logging
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from gguf.quants import dequantize

from parkway.backends.cpu.pack import Matrix
from parkway.backends.cpu.stack import Stack
from parkway.backends.cuda import nvrtc, quantised
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.quant import SUPPORTED
from parkway.backends.reference import Floats, ReferenceOps, ReferencePack, ReferenceStep
from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.models import Dense, build_model
from parkway.models.summary import model_facts
from parkway.models.tensors import Pack
from parkway.runner.cpu_load import load_on_cpu
from parkway.runner.cuda_load import CudaPack
from parkway.weights import open_checkpoint, random_checkpoint
from parkway.weights.random_checkpoint import RandomCheckpoint
from parkway.weights.shapes import SHAPES
from parkway.weights.summary import facts
from tests.backends.cuda import emulated
from tests.backends.rig import CpuPack, Rig
from tests.models.altered import altered
from tests.models.converted import as_gguf
from tests.models.prediction_heads import WEIGHTS, Drafting, WholeHead, drafted, holding, with_head
from tests.models.runs import step_of
from tests.models.transformers_models import FAMILIES, VOCABULARY, Tiny
from tests.models.whole_sequence import read_safetensors

NAMES = ("qwen3next", "qwen35", "qwen35moe")
TOKENS = [(i * 29 + i * i // 3) % VOCABULARY for i in range(101)]
SETTINGS = EngineSettings(threads=1)


@pytest.fixture(autouse=True)
def small_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_checkpoint, "_POOL_BYTES", 1 << 20)


@pytest.fixture(scope="module", params=NAMES)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return Tiny(FAMILIES[request.param], seed=6)


@pytest.fixture(scope="module")
def folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_head(tiny, tiny.save(tmp_path_factory.mktemp("saved") / "tiny"))


@pytest.fixture(scope="module")
def file(tiny: Tiny, folder: Path) -> Path:
    return as_gguf(tiny, folder, folder.with_name("tiny.gguf"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tiny = Tiny(FAMILIES["qwen35"])
    return with_head(tiny, tiny.save(tmp_path / "small"))


def loaded(path: Path, pack: Pack | None = None) -> Dense:
    return build_model(open_checkpoint(path), pack or ReferencePack())


def referred(model: Dense, hidden: Floats, counts: list[int]) -> Floats:
    """Logits that the reference drafts for rows of TOKENS, so many of them in each step."""
    config, made, start = model.config, [], 0
    ops = ReferenceOps(replace(config.kv, layers=config.kv.layers + 1))
    for count in counts:
        rows = range(start, start + count)
        ops.step = ReferenceStep([TOKENS[row + 1] for row in rows], rows, [[1, 0]] * count, range(count))
        made.append(drafted(model, ops, hidden[start : start + count]))
        start += count
    assert start == len(hidden)
    return np.concatenate(made)


def test_it_drafts_what_an_independent_pass_does(tiny: Tiny, folder: Path, file: Path) -> None:
    whole = WholeHead(tiny, folder)
    hidden = whole.hidden(tiny.run(TOKENS[:-1])[1][-1])
    wanted = whole.logits(hidden, TOKENS[1:])
    assert wanted.std() > 0.2
    for path in (folder, file):
        model = loaded(path)
        np.testing.assert_allclose(referred(model, hidden, [100]), wanted, atol=1e-11, rtol=0)
        np.testing.assert_allclose(referred(model, hidden, [60, *[1] * 10, 30]), wanted, atol=1e-11, rtol=0)


def test_halves_the_wrong_way_round_are_seen(small: Path) -> None:
    """The comparison above can fail."""
    model, random = loaded(small), np.random.default_rng(0)
    hidden = random.standard_normal((100, 64))
    right, head = referred(model, hidden, [100]), model.prediction_head
    assert head
    model.prediction_head = replace(head, from_embedding=(head.from_hidden,), from_hidden=head.from_embedding[0])
    assert np.abs(referred(model, hidden, [100]) - right).max() > 0.1


@pytest.mark.parametrize("kind", SUPPORTED)
@pytest.mark.parametrize("shape", ["tiny-qwen35", "tiny-qwen35moe"])
def test_the_cpu_drafts_what_the_reference_does(shape: str, kind: str) -> None:
    path, step = Path(f"shape:{shape}:{kind}"), step_of([(0, position) for position in range(90)])
    model, exact = (Drafting(loaded(path, pack), pack) for pack in (CpuPack(), ReferencePack()))
    rig = Rig(lambda recorder: [model.forward(recorder)], heads=model.config.heads, kv=model.config.kv)
    wanted = exact.forward(ReferenceOps(exact.config.kv, step=step))
    assert wanted.std() > 0.3
    assert np.abs(rig.run(step)[0] - wanted).max() < 1e-4


def packed(part: Any) -> Iterator[tuple[Any, ...]]:
    """All packed weights of a part of a model, as bytes."""
    if isinstance(part, np.ndarray):
        yield "vector", part.tobytes()
    elif isinstance(part, Matrix):
        yield part.type, part.rows, part.columns, C.string_at(part.address, part.size_bytes)
    elif isinstance(part, Stack):
        raw = C.string_at(part.first.address, part.count * part.expert_bytes)
        yield part.first.type, part.count, part.first.rows, part.first.columns, raw
    elif isinstance(part, tuple):
        for each in part:
            yield from packed(each)
    elif is_dataclass(part):
        for field in fields(part):
            yield from packed(getattr(part, field.name))


def test_both_formats_are_packed_alike(tiny: Tiny, folder: Path, file: Path) -> None:
    of_folder, of_file = (list(packed(loaded(path, CpuPack()).prediction_head)) for path in (folder, file))
    assert of_folder == of_file
    assert len(of_folder) == (20 if tiny.family.name == "Qwen3_5" else 25)  # one of them says how positions are told
    assert len(set(of_folder)) == len(of_folder)


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q8_0", "BF16"])
def test_values_are_those_of_the_file(kind: str) -> None:
    checkpoint = RandomCheckpoint(SHAPES["tiny-qwen35"], kind)
    head = build_model(checkpoint, ReferencePack()).prediction_head
    assert head

    def values(name: str) -> Floats:
        tensor = checkpoint.tensors[f"blk.4.{name}.weight"]
        return dequantize(tensor.raw, tensor.type).astype(np.float64).reshape(tensor.shape)

    both = values("nextn.eh_proj")
    np.testing.assert_array_equal(head.from_embedding[0].values, both[:, :256])
    np.testing.assert_array_equal(head.from_hidden.values, both[:, 256:])
    np.testing.assert_array_equal(head.layer.feed.down.values, values("ffn_down"))
    np.testing.assert_array_equal(head.layer.mixer.qkv[2].values, values("attn_v"))
    for name in ("enorm", "hnorm", "shared_head_norm"):
        made = {"enorm": head.embedding_norm, "hnorm": head.hidden_norm, "shared_head_norm": head.norm}[name]
        np.testing.assert_array_equal(made, values(f"nextn.{name}"))


@pytest.mark.parametrize("kind", ["Q5_K", "Q8_0"])
def test_on_the_gpu_it_stays_quantised(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)
    checkpoint = RandomCheckpoint(SHAPES["tiny-qwen35"], kind)
    head = build_model(checkpoint, CudaPack(device)).prediction_head
    assert head
    tensor = checkpoint.tensors["blk.4.nextn.eh_proj.weight"]
    halves = np.split(dequantize(tensor.raw, tensor.type), 2, axis=1)
    ((embedding, heights),) = head.from_embedding.parts
    assert heights == [256]
    for matrix, values in zip((embedding, head.from_hidden), halves, strict=True):
        assert isinstance(matrix, QuantMatrix)
        made = torch.empty(256, 256, dtype=torch.bfloat16, device=device)
        quantised.dequantise(matrix, made)
        assert torch.equal(made.cpu(), torch.from_numpy(values).to(torch.bfloat16))


@pytest.mark.parametrize("name", ["tiny-qwen35", "tiny-qwen35moe"])
def test_its_bytes_are_counted(name: str) -> None:
    shape = SHAPES[name]
    checkpoints = RandomCheckpoint(shape), RandomCheckpoint(replace(shape, predicts=False))
    tensors = [tensor for name, tensor in checkpoints[0].tensors.items() if name.startswith("blk.4.")]
    shapes = [tensor.shape for tensor in tensors if len(tensor.shape) > 1]
    size, filled_up = (
        sum(2 * math.prod((*counts, -(-rows // group) * group, columns)) for *counts, rows, columns in shapes)
        for group in (1, 16)
    )
    with_it, without = (load_on_cpu(checkpoint, SETTINGS).weight_bytes for checkpoint in checkpoints)
    assert with_it - without == filled_up
    packs = CudaPack(torch.device("cpu")), CudaPack(torch.device("cpu"))
    for checkpoint, pack in zip(checkpoints, packs, strict=True):
        build_model(checkpoint, pack)
    assert packs[0].bytes - packs[1].bytes == size


def test_weights_that_fit_without_it_only_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without = RandomCheckpoint(replace(SHAPES["tiny-qwen35"], predicts=False))
    free = load_on_cpu(without, SETTINGS).weight_bytes
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    assert load_on_cpu(without, SETTINGS)
    with pytest.raises(NoRoom, match="the weights need"):
        load_on_cpu(RandomCheckpoint(SHAPES["tiny-qwen35"]), SETTINGS)


def test_it_is_told(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        told = model_facts(open_checkpoint(small))
    assert "the prediction head is kept for speculation; nothing uses it yet" in caplog.text
    assert facts(open_checkpoint(small))["layers"] == "4"
    assert told["layers by kind"] == "3 delta net; 1 attention to all"
    own = {name: values for name, values in read_safetensors(small / WEIGHTS).items() if name.startswith("mtp.")}
    size = sum(4 * values.size for values in own.values()) / 2**20
    assert told["prediction head"] == (
        f"1 layer more, {size:,.1f} MiB of weights; kept for speculation, nothing uses it yet"
    )


def test_a_file_without_one(small: Path) -> None:
    """config.json may speak of one that a folder hasn't got, and so may a GGUF file's metadata."""
    tiny = Tiny(FAMILIES["qwen35"])
    own = {name: values for name, values in read_safetensors(small / WEIGHTS).items() if not name.startswith("mtp.")}
    config = (small / "config.json").read_text()
    (small / "config.json").write_text(config.replace("{", '{"mtp_num_hidden_layers": 1,', 1))
    assert loaded(holding(small, own)).prediction_head is None
    path = as_gguf(tiny, small, small.with_name("small.gguf"))
    spoken = {"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    for each in (path, altered(path, architecture="qwen35", values=spoken)):
        assert loaded(each).prediction_head is None
    assert "prediction head" not in model_facts(open_checkpoint(path))


def test_it_shares_the_models_matrices_or_brings_its_own(small: Path) -> None:
    tiny = Tiny(FAMILIES["qwen35"])
    model = loaded(small)
    assert model.prediction_head
    assert model.prediction_head.embedding is model.embedding
    assert model.prediction_head.output is model.head
    path = as_gguf(tiny, small, small.with_name("small.gguf"))
    own = {
        name: np.full((VOCABULARY, 64), i, np.float32) for i, name in enumerate(("embed_tokens", "shared_head_head"))
    }
    head = loaded(
        altered(path, architecture="qwen35", tensors={f"blk.4.nextn.{name}.weight": own[name] for name in own})
    ).prediction_head
    assert head
    assert (head.embedding.values == 0).all()
    assert (head.output.values == 1).all()
    tensors = {**read_safetensors(small / WEIGHTS), "mtp.embed_tokens.weight": np.full((VOCABULARY, 64), 7.0)}
    head = loaded(holding(small, tensors)).prediction_head
    assert head
    assert (head.embedding.values == 7).all()
    assert head.output is not head.embedding
