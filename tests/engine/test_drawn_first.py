"""Answers whose tokens are drawn before it is known what their grammar allows: the same alone, parked and among others,
however quick the masks are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.plan.limits import Knobs
from parkway.plan.step import Chunk
from parkway.request import Request, SamplingParams
from parkway.runner import Sampled
from parkway.runner import constraint as module
from parkway.runner.cpu_runner import CpuRunner
from parkway.runner.edits import Edits
from parkway.runner.load import Model
from parkway.text import ModelText
from parkway.text.grammar import grammar_of, vocabulary_of
from tests.engine.test_constraints import LETTERS, SCHEMA, SETTINGS, VOCABULARY, WRONG, crowd, real_crowd, text
from tests.engine.toy import PARKS, ToyRunner, joined, make_request, make_toy, outputs_of


def toy(**limits: Any) -> Engine:
    engine = make_toy(ToyRunner(draws_again=True), **limits)
    engine.teach(VOCABULARY)
    return engine


@pytest.mark.parametrize("parks", PARKS.values(), ids=PARKS.keys())
@pytest.mark.parametrize("chunk_tokens", [None, 7])
def test_answers_are_the_same_alone_and_parked(parks: dict[str, Any], chunk_tokens: int | None) -> None:
    alone = [joined(outputs_of(toy(), [request])[request.id]) for request in crowd()]
    engine = toy(chunk_tokens=chunk_tokens, **parks)
    outputs = outputs_of(engine, crowd())
    assert [joined(outputs[request.id]) for request in crowd()] == alone
    assert (engine.snapshot.parks > 0) == bool(parks)
    assert [made[3] for made in alone][::3] == ["stop", "stop"]
    assert text(alone[1][0])[0] == "("
    engine.close()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_goes_wrong_with_a_grammar_ends_its_request_and_no_other(wrong: tuple[str, str]) -> None:
    stuck, other = make_request(0, 70, grammar=wrong[0]), crowd()[3]
    outputs = outputs_of(toy(), [stuck, other])
    assert outputs[0][-1].finish_reason == "error"
    assert (outputs[0][-1].error or "").startswith(wrong[1])
    assert text([token for output in outputs[0] for token in output.token_ids]) in ("", "a")
    assert joined(outputs[3]) == joined(outputs_of(toy(), [other])[3])


def test_a_panic_of_the_library_ends_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind two tokens, in the step in which a third is forbidden."""

    class Panic(BaseException):
        pass

    right, worked_out = module.Constraint._work_out, list[int]()

    def panics(constraint: module.Constraint) -> None:
        worked_out.append(constraint.request.id)
        if constraint.request.id == 0 and len(worked_out) > 2:
            raise Panic("planted")
        right(constraint)

    stuck, other = crowd()[0], crowd()[3]
    wanted = joined(outputs_of(toy(), [other])[3])
    monkeypatch.setattr(module.Constraint, "_work_out", panics)
    outputs = outputs_of(toy(), [stuck, other])
    assert outputs[0][-1].error == "the grammar gave up: planted"
    assert joined(outputs[3]) == wanted


HOWS: dict[str, dict[str, Any]] = {
    "drawn": {"temperature": 0.8},
    "with a penalty": {"temperature": 1.0, "presence_penalty": 0.7, "logit_bias": ((5, 2.0),)},
    "greedy": {"temperature": 0.0, "top_k": 40},
    "chances differ": {"temperature": 0.8, "top_p": 0.9},
}


def chats(tiny: Path, how: dict[str, Any]) -> list[Request]:
    how = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | how
    made = [structs.replace(each, sampling=structs.replace(each.sampling, **how)) for each in real_crowd(tiny)]
    longer: dict[str, Any] = {"max_tokens": 90, "logprobs": 1, "grammar": LETTERS, "ignore_eos": True} | how
    longest = Request(
        id=4,
        prompt=[*range(3)],
        sampling=SamplingParams(**longer),
        seed=9,
        stop_ids=made[0].stop_ids,
    )
    return [*made, longest]


def answers(engine: Engine, tiny: Path, requests: list[Request]) -> dict[int, Any]:
    engine.teach(vocabulary_of(ModelText.from_path(tiny).tokenizer))
    made = {request_id: joined(each) for request_id, each in outputs_of(engine, requests).items()}
    engine.close()
    return made


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS.keys())
def test_a_real_model_answers_the_same_bits_however_quick_masks_are(
    model: Model, tiny: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, parked by copies and recomputed, and with masks that are all slow."""
    again, original = list[int](), CpuRunner.again

    def counted(self: CpuRunner, chunk: Chunk, edits: Edits) -> Sampled:
        again.append(chunk.slot)
        return original(self, chunk, edits)

    monkeypatch.setattr(CpuRunner, "again", counted)
    requests = chats(tiny, how)
    wanted: dict[int, Any] = {}
    for request in requests:
        wanted |= answers(make_engine(model, SETTINGS), tiny, [request])
    drawn_again = len(again)
    assert (drawn_again > 10) == (how != HOWS["chances differ"])
    by_copy = replace(SETTINGS, parallel=5)
    by_recompute = replace(by_copy, preempt="recompute")
    for settings, chunk_tokens, patience in ((by_copy, None, 1.0), (by_recompute, 5, 1.0), (by_copy, 3, -1.0)):
        monkeypatch.setattr(module, "PATIENCE", patience)
        engine = make_engine(model, settings, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=7, forget=True))
        assert answers(engine, tiny, requests) == wanted
        assert engine.snapshot.parks > 3
    assert len(again) == 4 * drawn_again


def test_a_greedy_answer_is_that_of_masks_that_were_there(
    model: Model, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for draws_again in (True, False):
        if not draws_again:
            monkeypatch.setattr(CpuRunner, "again", None)
        made.append(answers(make_engine(model, replace(SETTINGS, parallel=5)), tiny, chats(tiny, HOWS["greedy"])))
    assert made[0] == made[1]
    assert len(made[0][0][0]) > 10


def test_the_second_number_is_another(model: Model, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the first once more. Answers that were drawn again are others then."""
    grammar = grammar_of("json_schema", SCHEMA, "x")
    request = chats(tiny, HOWS["drawn"])[0]
    request = structs.replace(request, sampling=structs.replace(request.sampling, grammar=grammar))
    right = answers(make_engine(model, SETTINGS), tiny, [request])
    original = CpuRunner.again

    def forgets(self: CpuRunner, chunk: Chunk, edits: Edits) -> Sampled:
        at = self._sampled_at[chunk.slot]
        made = original(self, chunk, edits)
        self._samples[at].draw = 0
        self.program.again(self._batch, at)
        return made._replace(token_id=self._samples[at].token)

    monkeypatch.setattr(CpuRunner, "again", forgets)
    assert answers(make_engine(model, SETTINGS), tiny, [request]) != right
