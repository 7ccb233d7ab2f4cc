"""The whole way of a step on the GPU backend: on a GPU, or on the CPU under Triton's interpreter."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from parkway.backends.bit_check import BitCheckFailed, Subject, Verdict
from parkway.backends.cuda import mapped, rows_subjects
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.rows import rms_norm
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.plan.copies import Copy, Owner
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Output, Request, SamplingParams
from parkway.runner import Sampled, cuda_load
from parkway.runner.cpu_load import load_on_cpu
from parkway.runner.cuda_compile import subjects
from parkway.runner.cuda_load import CudaModel, CudaPack, load_on_gpu
from parkway.runner.cuda_runner import CudaRunner
from parkway.runner.cuda_step import DeviceStep, Steps
from parkway.runner.load import Model
from parkway.weights import open_checkpoint
from parkway.weights.checkpoint import RawTensor
from parkway.weights.shapes import Shape
from tests.backends.cuda.interpreted import mend
from tests.checkpoints import QWEN2, QWEN3, tiny_folder, tiny_llama

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

SETTINGS = EngineSettings(ctx_size=256, parallel=2)
REQUESTS = [
    Request(id=0, prompt=[3, 1, 4, 1, 5], sampling=SamplingParams(max_tokens=2, temperature=0, logprobs=2), seed=0),
    Request(
        id=1,
        prompt=[*range(90, 110)],
        sampling=SamplingParams(max_tokens=2, temperature=0.8, top_k=20, logprobs=2, prompt_logprobs=1),
        seed=7,
    ),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "f16.gguf", types=("F16",))


@pytest.fixture(scope="module")
def model(path: Path) -> CudaModel:
    """On the CPU the bit check would take minutes: its parts are tested one by one."""
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(cuda_load, "kept_verdict", lambda kernels, types, device: Verdict(0, {}, 0.0))
        return load_on_gpu(open_checkpoint(path), SETTINGS, Device.found())


def answers(
    model: Model, requests: list[Request], settings: EngineSettings = SETTINGS, **limits: Any
) -> dict[int, list[Output]]:
    engine = make_engine(model, settings, **limits)
    for request in requests:
        engine.arrive(request)
    outputs: dict[int, list[Output]] = {request.id: [] for request in requests}
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else ():
            outputs[output.request_id].append(output)
    return outputs


@pytest.fixture(scope="module")
def together(model: CudaModel) -> dict[int, list[Output]]:
    return answers(model, REQUESTS)


def test_an_answer_alone_is_the_answer_in_company(model: CudaModel, together: dict[int, list[Output]]) -> None:
    alone = answers(model, [REQUESTS[1]])[1]
    assert [output.token_ids for output in alone] == [output.token_ids for output in together[1]]
    assert [output.logprobs for output in alone] == [output.logprobs for output in together[1]]


def test_every_token_and_every_prompt_logprob_is_reported(together: dict[int, list[Output]]) -> None:
    for request in REQUESTS:
        outputs = together[request.id]
        assert [len(output.token_ids) for output in outputs if output.token_ids] == [1, 1]
        assert outputs[-1].finish_reason == "length"
    scored = [logprob.position for output in together[1] for logprob in output.prompt_logprobs]
    assert scored == list(range(1, 20))


def test_both_backends_agree_but_for_rounding(path: Path, together: dict[int, list[Output]]) -> None:
    """The CPU without quantised activations is the measure; the GPU rounds every value to bf16."""
    settings = replace(SETTINGS, activations="f32")
    cpu = answers(load_on_cpu(open_checkpoint(path), settings), REQUESTS, settings)
    for request in REQUESTS:
        for ours, theirs in zip(together[request.id], cpu[request.id], strict=True):
            for a, b in zip(ours.prompt_logprobs, theirs.prompt_logprobs, strict=True):
                assert a.logprob == pytest.approx(b.logprob, abs=0.15)
    assert [output.token_ids for output in together[0]] == [output.token_ids for output in cpu[0]]


EMBEDDED = [
    Request(id=3, prompt=[*range(40, 46)], sampling=SamplingParams(max_tokens=0, embed="mean"), seed=0),
    Request(id=4, prompt=[*range(60, 64)], sampling=SamplingParams(max_tokens=0, embed="last"), seed=0),
]


def embeddings(outputs: dict[int, list[Output]]) -> dict[int, bytes]:
    return {request.id: outputs[request.id][-1].embedding for request in EMBEDDED}


@pytest.fixture(scope="module")
def embedded(model: CudaModel) -> dict[int, bytes]:
    """Each alone."""
    alone = [answers(model, [request]) for request in EMBEDDED]
    return embeddings(alone[0] | alone[1])


def test_embeddings_are_near_those_of_the_cpu(path: Path, embedded: dict[int, bytes]) -> None:
    settings = replace(SETTINGS, activations="f32")
    cpu = embeddings(answers(load_on_cpu(open_checkpoint(path), settings), EMBEDDED, settings))
    for ours, theirs in zip(embedded.values(), cpu.values(), strict=True):
        found, exact = (np.frombuffer(each, np.float32) for each in (ours, theirs))
        assert len(found) == 64
        assert np.linalg.norm(found - exact) < 0.03 * np.linalg.norm(exact)


@pytest.mark.parametrize("limits", [{}, {"chunk_tokens": 1}], ids=str)
def test_embeddings_in_company_are_those_of_each_alone(
    model: CudaModel, embedded: dict[int, bytes], together: dict[int, list[Output]], limits: dict[str, int]
) -> None:
    outputs = answers(model, [REQUESTS[0], *EMBEDDED], replace(SETTINGS, parallel=4), **limits)
    assert embeddings(outputs) == embedded
    assert [each.logprobs for each in outputs[0]] == [each.logprobs for each in together[0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs need a GPU")
def test_graphs_change_no_bit(model: CudaModel, together: dict[int, list[Output]]) -> None:
    assert answers(model, REQUESTS, replace(SETTINGS, cuda_graphs="off")) == together


def test_steps_of_nobody_change_no_bit(
    model: CudaModel, together: dict[int, list[Output]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are run at load, to capture graphs; here as if there were some."""
    monkeypatch.setattr(Steps, "decode_buckets", (1, 2))
    assert answers(model, REQUESTS) == together


def test_rows_of_nobody_fit_where_a_step_has_few_rows_at_most(
    model: CudaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = model.runner(replace(SETTINGS, batch_size=18))._steps
    monkeypatch.setattr(steps, "graphs", True)
    assert {steps.of(rows).rows for rows in range(1, 19)} == {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize(("parallel", "most"), [(1, 1), (2, 2), (3, 4)])
def test_no_chat_waits_for_the_graph_of_a_decoding_step(
    model: CudaModel, monkeypatch: pytest.MonkeyPatch, parallel: int, most: int
) -> None:
    steps = model.runner(replace(SETTINGS, parallel=parallel))._steps
    monkeypatch.setattr(steps, "graphs", True)
    assert steps.of(parallel).rows == steps.decode_buckets[-1] == most


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "at once"])
def test_what_a_launched_step_writes_is_parked_and_comes_back(model: CudaModel, beside: bool) -> None:
    runner = model.runner(SETTINGS)
    copies = runner.copies(2**24, beside=beside)
    before = copies._engine._behind
    runner.launch(StepPlan((Chunk(0, REQUESTS[1], 0, tuple(REQUESTS[1].prompt), (2,), False),)))
    assert copies._engine._behind is not before, "copies don't wait for the step"
    copies.submit(Copy(0, Owner.PARK, (2,), (5,)))
    copies.drain()
    copies.submit(Copy(1, Owner.RESTORE, (5,), (0,)))
    copies.drain()
    runner.land()
    parked, back = (runner._store.page(page).flatten().view(torch.uint8) for page in (2, 0))
    assert torch.equal(parked, back)
    assert parked.any()


def a_step(*chunks: tuple[int, tuple[int, ...]], start: int = 0, tokens: int = 1) -> StepPlan:
    """For each (slot, pages) the next tokens of a prompt, sampled from."""
    prompt = tuple(REQUESTS[1].prompt[start : start + tokens])
    return StepPlan(tuple([Chunk(slot, REQUESTS[1], start, prompt, pages, True) for slot, pages in chunks]))


def sampled(runner: CudaRunner, plan: StepPlan) -> list[Sampled]:
    runner.launch(plan)
    return [each for _, each in runner.land()]


def test_a_step_has_no_need_of_a_copy_engine(model: CudaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """That serves one after the other, and pages of parked chats take it milliseconds."""
    runner = model.runner(SETTINGS)
    for start in range(2):  # what is done once: kernels are tuned, graphs captured
        sampled(runner, a_step((0, (2,)), start=start))
    with monkeypatch.context() as patch:
        for name in ("copy_", "cpu", "cuda") + ("to",) * torch.cuda.is_available():  # the interpreter needs it
            patch.setattr(torch.Tensor, name, lambda *asked, name=name, **how: pytest.fail(name))
        assert sampled(runner, a_step((0, (2, 1)), start=2))


def test_nobody_reads_words_that_were_not_sent(model: CudaModel) -> None:
    clean, foul = (model.runner(SETTINGS) for _ in range(2))
    foul._steps.words.fill_(2**30)
    plan = a_step((0, (2,)), tokens=20)
    wanted = sampled(clean, plan)
    assert [sampled(foul, plan) for _ in range(2)] == [wanted] * 2, "launched one by one, then as a graph"


def test_the_device_has_the_page_tables_of_every_step(model: CudaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceStep, "run", lambda step, **how: None)
    runner, send = model.runner(SETTINGS), mapped.send
    expected: dict[int, tuple[int, ...]] = {}
    sent: list[int] = []

    def told(*asked: Any) -> None:
        sent.append(asked[-1])
        send(*asked)

    monkeypatch.setattr(mapped, "send", told)
    same = (2, 0)
    steps: list[list[tuple[int, tuple[int, ...]]]] = [
        [(0, (2,)), (1, (1, 3))],
        [(1, (1, 3)), (0, same)],  # equal; longer by a page
        [(0, same)],
        [(0, (0, 2, 1, 3)), (1, (3, 1))],  # others, as after a park
        [(0, (0, 2)), (1, (3, 1, 2, 0))],  # fewer; longer by two
    ]
    for chunks in steps:
        sampled(runner, a_step(*chunks))
        expected |= dict(chunks)
        for slot, pages in expected.items():
            assert tuple(runner._steps.tables[slot, : len(pages)].tolist()) == pages
    assert sent == [3, 1, 0, 6, 4]


def test_a_kernel_whose_bits_depend_on_the_batch_makes_the_load_fail_by_name(
    path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    def planted(x: torch.Tensor, *given: Any) -> torch.Tensor:
        made = rms_norm(x, *given)
        return made if len(x) < 8 else made * 1.01

    def norms(device: torch.device, needs: tuple[str, ...]) -> Iterator[Subject]:
        """On the CPU the whole check would take minutes."""
        return (subject for subject in subjects(device, needs) if subject.name == "norm")

    monkeypatch.setattr(rows_subjects, "rms_norm", planted)
    monkeypatch.setattr(cuda_load, "subjects", norms)
    monkeypatch.setattr(cuda_load, "compile_side_by_side", lambda types: None)
    with pytest.raises(BitCheckFailed, match="no configuration of norm computes a row alone as it does among others"):
        load_on_gpu(open_checkpoint(path), SETTINGS, Device.found())


@pytest.mark.parametrize("family", [QWEN2, QWEN3])
def test_the_other_families_agree_with_the_cpu(family: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(cuda_load, "kept_verdict", lambda kernels, types, device: Verdict(0, {}, 0.0))
    how = SamplingParams(max_tokens=1, temperature=0, logprobs=2)
    request = Request(id=0, prompt=[9, 8], sampling=how, seed=0)
    folder = open_checkpoint(tiny_folder(tmp_path / "tiny", family))
    settings = replace(SETTINGS, activations="f32")
    (gpu,) = answers(load_on_gpu(folder, SETTINGS, Device.found()), [request])[0]
    (cpu,) = answers(load_on_cpu(folder, settings), [request], settings)[0]
    assert gpu.logprobs[0].logprob == pytest.approx(cpu.logprobs[0].logprob, abs=0.1)


def test_room_for_decoded_experts_is_there_from_the_start(model: CudaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """And told; a prompt must not be the first to ask for gigabytes, and graphs keep addresses."""
    monkeypatch.setattr(Device, "used_bytes", 0)
    runner = replace(model, decoded=1 << 12).runner(SETTINGS)
    assert runner.buffer_bytes == 1 << 14
    assert runner._steps.ops._experts._rooms.bytes == 1 << 14


def test_the_largest_stack_that_is_decoded_is_known(device: torch.device) -> None:
    pack = CudaPack(device)
    for kind, rows, row_bytes in (("Q4_0", 8, 144), ("Q4_0", 16, 144), ("Q4_0", 8, 144), ("F32", 32, 1024)):
        raw = np.zeros((rows, row_bytes), np.uint8)
        pack.stack([RawTensor("w", (rows, 256), GGMLQuantizationType[kind], raw)] * 3)
    assert pack.decoded == 3 * 16 * 256


def test_an_engine_begins_with_memory_for_parks(model: CudaModel) -> None:
    """Others, as verify's, get it when they need it: pinning takes a second."""
    assert make_engine(model, SETTINGS).snapshot.host_bytes > 0
    assert model.runner(SETTINGS).copies(2**24, beside=True).held_bytes == 0
