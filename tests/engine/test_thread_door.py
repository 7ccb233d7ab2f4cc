"""The door to an engine in a thread: answers, cancels, the end of the engine, and nobody left waiting."""

import threading
from queue import SimpleQueue

import pytest

from parkway.engine.door import Door, ThreadDoor
from parkway.errors import EngineDied
from parkway.request import Output, Request
from tests.engine.toy import BrokenRunner, ToyRunner, expected, joined, make_request, make_toy


def ask(door: Door, request: Request) -> list[Output]:
    queue: SimpleQueue[Output] = SimpleQueue()
    door.submit(request, queue.put)
    outputs = [queue.get(timeout=30)]
    while outputs[-1].finish_reason is None:
        outputs.append(queue.get(timeout=30))
    return outputs


def test_many_threads_at_once_get_the_answers_of_each_alone() -> None:
    door = ThreadDoor(make_toy(pages=8))
    requests = [make_request(door.next_id(), 30, max_tokens=60) for _ in range(12)]
    answers = {}

    def work(request: Request) -> None:
        answers[request.id] = joined(ask(door, request))

    threads = [threading.Thread(target=work, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    door.close()
    assert answers == {request.id: expected(request, 512) for request in requests}
    assert (door.snapshot.running, door.snapshot.pages_used) == (0, 0)


def test_a_sink_may_cancel_and_hears_no_more() -> None:
    door = ThreadDoor(make_toy(ToyRunner(seconds=0.001)))
    heard = []
    cancelled = threading.Event()

    def sink(output: Output) -> None:
        heard.append(output)
        if len(heard) == 3:
            door.cancel(1)
            cancelled.set()

    door.submit(make_request(1, ignore_eos=True), sink)
    assert cancelled.wait(30)
    other = make_request(2, max_tokens=5, ignore_eos=True)
    assert joined(ask(door, other)) == expected(other, 512)
    door.close()
    assert len(heard) == 3
    assert door.snapshot.finished == {"cancelled": 1, "length": 1}


def test_close_ends_what_is_open_and_refuses_the_rest() -> None:
    door = ThreadDoor(make_toy(ToyRunner(seconds=0.001)))
    queue: SimpleQueue[Output] = SimpleQueue()
    door.submit(make_request(1, ignore_eos=True), queue.put)
    queue.get(timeout=30)
    door.close()
    outputs = [queue.get(timeout=30) for _ in range(queue.qsize())]
    assert (outputs[-1].finish_reason, outputs[-1].error) == ("error", "the engine has been closed")
    with pytest.raises(EngineDied):
        door.submit(make_request(2), queue.put)
    door.close()


def test_a_broken_engine_ends_every_request(caplog: pytest.LogCaptureFixture) -> None:
    door = ThreadDoor(make_toy(BrokenRunner(), slots=1))
    queue: SimpleQueue[Output] = SimpleQueue()
    for request_id in range(5):
        door.submit(make_request(request_id, ignore_eos=True), queue.put)
    ended: dict[int, str | None] = {}
    while len(ended) < 5:
        output = queue.get(timeout=30)
        if output.finish_reason:
            ended[output.request_id] = output.error
    assert set(ended.values()) == {"the engine died: planted"}
    with pytest.raises(EngineDied, match="planted"):
        door.submit(make_request(9), queue.put)
    door.close()
    assert "planted" in caplog.text


def test_an_id_in_use_is_refused_at_the_door() -> None:
    door = ThreadDoor(make_toy(ToyRunner(seconds=0.001)))
    door.submit(make_request(1, ignore_eos=True), lambda output: None)
    with pytest.raises(ValueError, match="already open"):
        door.submit(make_request(1), lambda output: None)
    door.close()
