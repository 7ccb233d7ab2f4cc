"""Grammars through the engine: answers are kept to them, with the same bits whoever is beside them and wherever they
have been; nobody waits for a grammar, and what goes wrong with one ends its own request."""

import asyncio
import json
import re
import socket
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from parkway import LLM
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.child import _SocketInbox
from parkway.engine.door import ThreadDoor, _QueueInbox
from parkway.engine.engine import Engine
from parkway.engine.events import Arrive, Cancel, Event, Teach, run
from parkway.engine.process_door import ProcessDoor
from parkway.errors import ChatFailed
from parkway.plan.limits import Knobs
from parkway.report import Report
from parkway.request import Output, Request, SamplingParams, Vocabulary
from parkway.runner import constraints as module
from parkway.runner.constraint import Constraint
from parkway.runner.load import Model
from parkway.text import ModelText
from parkway.text.grammar import grammar_of, vocabulary_of
from tests.engine.toy import FACTORY, PARKS, STOP_ID, VOCAB_SIZE, ToyRunner, joined, make_request, make_toy, outputs_of

VOCABULARY = Vocabulary([bytes([32 + i]) for i in range(VOCAB_SIZE)], frozenset({STOP_ID}))
"""Of the toy model: printable ASCII as far as w."""
WORDS = grammar_of("regex", "([a-e]{2,4},){3,9}", "grammar")
LETTERS = grammar_of("gbnf", 'root ::= "(" ([a-w] | root)+ ")"', "grammar")


def toy(*, ahead: int = 0, **limits: Any) -> Engine:
    engine = make_toy(ToyRunner(ahead=ahead), **limits)
    engine.teach(VOCABULARY)
    return engine


def crowd() -> list[Request]:
    hows: list[dict[str, Any]] = [
        {"grammar": WORDS},
        {"grammar": LETTERS, "presence_penalty": 0.5, "max_tokens": 60},
        {},
        {"grammar": WORDS, "ignore_eos": True},
    ]
    defaults = {"max_tokens": 80, "logprobs": 0}
    return [make_request(index, 3 + 17 * index, **(defaults | how)) for index, how in enumerate(hows)]


def text(tokens: list[int]) -> str:
    return b"".join(VOCABULARY.pieces[token] for token in tokens if token != STOP_ID).decode()


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("parks", PARKS.values(), ids=PARKS.keys())
@pytest.mark.parametrize("chunk_tokens", [None, 7])
def test_answers_are_kept_to_their_grammars_the_same_alone_and_parked(
    ahead: int, parks: dict[str, Any], chunk_tokens: int | None
) -> None:
    alone = [joined(outputs_of(toy(), [request])[request.id]) for request in crowd()]
    engine = toy(ahead=ahead, chunk_tokens=chunk_tokens, **parks)
    outputs = outputs_of(engine, crowd())
    assert [joined(outputs[request.id]) for request in crowd()] == alone
    assert (engine.snapshot.parks > 0) == bool(parks)
    for index in (0, 3):
        assert re.fullmatch("([a-e]{2,4},){3,9}", text(alone[index][0]))
        assert alone[index][3] == "stop"
    assert text(alone[1][0])[0] == "("
    assert alone[2][0] == joined(outputs_of(toy(), [make_request(2, 37, max_tokens=80)])[2])[0]
    assert not engine._constraints._open
    engine.close()


def test_an_answer_that_nothing_may_end_is_told_to_be_over_behind_its_last_token() -> None:
    outputs = outputs_of(toy(), [make_request(0, ignore_eos=True, grammar=grammar_of("regex", "abc", "grammar"))])[0]
    assert text(joined(outputs)[0]) == "abc"
    assert [(len(output.token_ids), output.finish_reason) for output in outputs] == [(1, None)] * 3 + [(0, "stop")]


class Gate:
    """Masks of one request wait at it; `begun` is set when the first is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, request_id: int) -> None:
        self.begun, self._open = threading.Event(), threading.Event()
        original = getattr(Constraint, name)

        def wait(constraint: Constraint, *how: Any) -> None:
            if constraint.request.id == request_id:
                self.begun.set()
                self._open.wait(60)
            original(constraint, *how)

        monkeypatch.setattr(Constraint, name, wait)

    def open(self) -> None:
        self._open.set()


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("name", ["begin", "accept"])
def test_nobody_waits_for_a_grammar_that_takes_long(ahead: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, name, 0)
    slow, other = crowd()[0], make_request(5, 10, max_tokens=40, ignore_eos=True)
    alone = [joined(outputs_of(toy(), [other])[5])]
    engine = toy(ahead=ahead)
    engine.arrive(slow)
    outputs: dict[int, list[Output]] = defaultdict(list)
    while not gate.begun.is_set():
        collect(engine, outputs)
    engine.arrive(other)
    steps = 0
    while not outputs[5] or outputs[5][-1].finish_reason is None:
        collect(engine, outputs)
        steps += 1
    assert steps <= 40 + ahead + 1
    assert len(outputs[0]) == (name == "accept")
    assert [joined(outputs[5])] == alone
    gate.open()
    while not engine.idle:
        collect(engine, outputs)
    assert joined(outputs[0]) == joined(outputs_of(toy(), [slow])[0])


def collect(engine: Engine, outputs: dict[int, list[Output]]) -> None:
    report = engine.step()
    for output in report.outputs if report else ():
        outputs[output.request_id].append(output)


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_chats_that_all_wait_for_their_last_token_share_their_steps(ahead: int) -> None:
    """Though they began in different ones. With a penalty, since a grammar's first masks may take any time."""
    engine = toy(ahead=ahead)
    requests = [make_request(index, max_tokens=30, ignore_eos=True, presence_penalty=0.5) for index in range(3)]
    outputs: dict[int, list[Output]] = defaultdict(list)
    for request in requests:
        engine.arrive(request)
        collect(engine, outputs)
    while not engine.idle:
        collect(engine, outputs)
    assert engine.snapshot.steps == 30 + 2
    assert [len(joined(outputs[request.id])[0]) for request in requests] == [30] * 3


def test_an_engine_whose_chats_all_wait_for_masks_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a nap of half a minute a turn would show in the test's time, a spin in the number of turns."""
    monkeypatch.setattr(module, "NAP", 30.0)
    engine = toy()
    request = crowd()[0]
    turns, inbox = 0, [Arrive(request)]

    class Inbox:
        def take(self) -> list[Event]:
            nonlocal turns
            turns += 1
            return []

        def wait(self, seconds: float | None = None) -> list[Event] | None:
            return [inbox.pop()] if inbox else None

    reports: list[Report] = []
    run(engine, Inbox(), reports.append)
    answer = joined(output for report in reports for output in report.outputs)
    assert answer == joined(outputs_of(toy(), [request])[0])
    assert turns <= 3 * len(answer[0]) + 5


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("name", ["begin", "accept"])
def test_cancels_and_a_close_beside_a_mask(ahead: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, name, 0)
    engine = toy(ahead=ahead)
    engine.arrive(crowd()[0])
    outputs: dict[int, list[Output]] = defaultdict(list)
    while not gate.begun.is_set():
        collect(engine, outputs)
    engine.cancel(0)
    while not engine.idle:
        collect(engine, outputs)
    assert outputs[0][-1].finish_reason == "cancelled"
    assert engine.snapshot.pages_used == 0
    threading.Timer(0.01, gate.open).start()
    engine.close()
    assert len(outputs[0]) == 1 + (name == "accept")


WRONG = {
    "no grammar": ("foo", "the grammar can't be compiled: "),
    "a grammar that is wrong": (json.dumps({"grammars": [{"lark_grammar": "start: foo"}]}), "the grammar gave up: "),
    "a grammar that the vocabulary can't follow": (grammar_of("regex", "aé", "grammar"), "the grammar allows no token"),
}


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_goes_wrong_with_a_grammar_ends_its_request_and_no_other(wrong: tuple[str, str], ahead: int) -> None:
    engine = toy(ahead=ahead)
    stuck, other = make_request(0, 70, grammar=wrong[0]), crowd()[3]
    outputs = outputs_of(engine, [stuck, other])
    assert outputs[0][-1].finish_reason == "error"
    assert (outputs[0][-1].error or "").startswith(wrong[1])
    assert text([token for output in outputs[0] for token in output.token_ids]) in ("", "a")
    assert joined(outputs[3]) == joined(outputs_of(toy(), [other])[3])
    assert engine.snapshot.pages_used == 0


def test_an_engine_makes_its_index_of_the_vocabulary_while_nobody_is_there() -> None:
    """It stops all steps meanwhile, and none waits for it who has no grammar: not the first after the start."""
    engine, indexed = make_toy(), list[bool]()
    inbox: list[list[Event] | None] = [[Teach(VOCABULARY)], [Arrive(make_request(0))], [], [Cancel(0)], None]

    class Inbox:
        def take(self) -> list[Event]:
            indexed.append(engine._constraints._tokenizer is not None)
            return []

        def wait(self, seconds: float | None = None) -> list[Event] | None:
            self.take()
            return inbox.pop(0)

    run(engine, Inbox(), lambda report: None)
    assert indexed == [False] * (len(indexed) - 2) + [True] * 2
    assert engine.snapshot.finished == {"stop": 1}


@pytest.mark.parametrize("door", [_QueueInbox, _SocketInbox], ids=["queue", "socket"])
def test_an_inbox_in_which_nothing_comes_says_so(door: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inbox = door(ours) if door is _SocketInbox else door()
        assert inbox.wait(0.001) == []


def test_an_engine_that_was_not_told_its_vocabulary_refuses() -> None:
    [end] = outputs_of(make_toy(), [crowd()[0]])[0]
    assert end.error == "the grammar can't be compiled: nobody has told what the tokens stand for"


def test_a_token_that_was_forbidden_is_never_told() -> None:
    class Careless(ToyRunner):
        def launch(self, plan: Any, edits: Any = None) -> None:
            super().launch(plan, {slot: each._replace(mask=None) for slot, each in edits.items()})

    engine = make_toy(Careless())
    engine.teach(VOCABULARY)
    outputs = outputs_of(engine, [make_request(0, grammar=grammar_of("regex", "w{30}", "grammar"))])[0]
    assert [output.error for output in outputs if output.finish_reason] == ["no token is allowed here"]
    assert {*text([token for output in outputs for token in output.token_ids])} <= {"w"}


def test_a_door_teaches_once_and_before_the_requests() -> None:
    door = ThreadDoor(make_toy())
    asked: list[int] = []

    def vocabulary() -> Vocabulary:
        asked.append(1)
        return VOCABULARY

    for _ in range(2):
        ended: list[Output] = []
        done = threading.Event()

        def sink(output: Output, ended: list[Output] = ended, done: threading.Event = done) -> None:
            ended.append(output)
            if output.finish_reason:
                done.set()

        door.teach(vocabulary)
        door.submit(structs.replace(crowd()[0], id=door.next_id()), sink)
        assert done.wait(60)
        assert re.fullmatch("([a-e]{2,4},){3,9}", text(joined(ended)[0]))
    assert asked == [1]
    door.close()


async def test_the_door_of_a_process_teaches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # the child finds the toy
    door = await ProcessDoor.start(Path("toy"), EngineSettings(), FACTORY)
    try:
        ended: list[Output] = []
        done = asyncio.Event()

        def sink(output: Output) -> None:
            ended.append(output)
            if output.finish_reason:
                done.set()

        door.teach(lambda: VOCABULARY)
        door.submit(structs.replace(crowd()[0], id=door.next_id()), sink)
        await asyncio.wait_for(done.wait(), 60)
    finally:
        door.close()
        await door.gone()
    assert joined(ended) == joined(outputs_of(toy(), [structs.replace(crowd()[0], id=0)])[0])


SETTINGS = EngineSettings(device="cpu", ctx_size=1024, parallel=4)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "ages": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "ages"],
}


def taught(model: Model, tiny: Path, settings: EngineSettings = SETTINGS, **how: Any) -> Engine:
    engine = make_engine(model, settings, **how)
    engine.teach(vocabulary_of(ModelText.from_path(tiny).tokenizer))
    return engine


def real_crowd(tiny: Path) -> list[Request]:
    how = SamplingParams(temperature=0.8, logprobs=2, max_tokens=60, top_k=40)
    grammars = [grammar_of("json_schema", SCHEMA, "x"), grammar_of("regex", "[a-z ]{20,50}", "x"), None, LETTERS]
    return [
        Request(
            id=index,
            prompt=[*range(5 + 20 * index)],
            sampling=structs.replace(how, grammar=grammar, ignore_eos=index == 1),
            seed=index,
            stop_ids=ModelText.from_path(tiny).tokenizer.stop_ids,
        )
        for index, grammar in enumerate(grammars)
    ]


@pytest.mark.parametrize(("preempt", "chunk_tokens"), [("copy", None), ("recompute", 5), ("copy", 1)])
def test_a_real_model_answers_the_same_bits_alone_and_parked_among_others(
    model: Model, tiny: Path, preempt: Any, chunk_tokens: int | None
) -> None:
    alone = taught(model, tiny)
    wanted = {request.id: joined(outputs_of(alone, [request])[request.id]) for request in real_crowd(tiny)}
    settings = replace(SETTINGS, preempt=preempt)
    engine = taught(model, tiny, settings, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=7, forget=True))
    outputs = outputs_of(engine, real_crowd(tiny))
    assert {i: joined(each) for i, each in outputs.items()} == wanted
    assert engine.snapshot.parks > 3
    engine.close()


PROMPTS = ["A person as JSON: ", "Ada Lovelace: ", "{", "Somebody"]


def test_the_default_model_answers_by_a_schema_the_same_alone_and_beside_others(smollm2: Path) -> None:
    how = SamplingParams(max_tokens=60, seed=1, grammar=grammar_of("json_schema", SCHEMA, "x"))
    with LLM(smollm2, ctx_size=512, parallel=4, device="cpu") as llm:
        together = llm.generate(PROMPTS, how)
        alone = llm.generate(PROMPTS[0], how)
        assert [alone[0].text, alone[0].token_ids] == [together[0].text, together[0].token_ids]
        with pytest.raises(ChatFailed, match="the grammar can't be compiled"):
            llm.generate("a", SamplingParams(grammar="foo"))
    for answer in together:
        made = json.loads(answer.text)
        assert answer.finish_reason == "stop"
        assert list(made) == ["name", "ages"]
        assert len(made["name"]) <= 9
        assert all(isinstance(age, int) and age <= 99 for age in made["ages"])
