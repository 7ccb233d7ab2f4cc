"""Frames on a stream: the same messages however it is cut, and a clear end."""

import socket
import threading

import pytest

from parkway.engine import wire
from parkway.engine.events import Arrive, Cancel, Teach
from parkway.request import Vocabulary
from tests.engine.toy import make_request

EVENTS = [
    Teach(Vocabulary([b"\x00\xff", b""], frozenset({1}))),
    Arrive(make_request(1)),
    Cancel(1),
    Arrive(make_request(2, 1000)),
    Cancel(2**40),
]
STREAM = b"".join(map(wire.frame, EVENTS))


@pytest.mark.parametrize("size", [1, 3, 4, 5, 64, len(STREAM) - 1, len(STREAM)])
def test_messages_do_not_depend_on_how_the_stream_is_cut(size: int) -> None:
    frames, messages = wire.Frames(), list[bytes]()
    for begin in range(0, len(STREAM), size):
        messages += frames.split(STREAM[begin : begin + size])
    assert [wire.decode_event(message) for message in messages] == EVENTS


def test_a_message_larger_than_the_socket_holds_is_received_whole() -> None:
    ours, theirs = socket.socketpair()
    event = Arrive(make_request(1, 500_000))
    with ours, theirs:
        sending = threading.Thread(target=theirs.sendall, args=(wire.frame(event),))
        sending.start()
        assert wire.decode_event(wire.receive(ours)) == event
        sending.join()


@pytest.mark.parametrize("rest", [0, 1, 4, 5])
def test_the_end_of_the_other_side_is_an_empty_message(rest: int) -> None:
    """Also within a frame, and where it has left something unread."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"unread")
        theirs.sendall(wire.frame(Cancel(1)) + wire.frame(Cancel(2))[:rest])
        theirs.close()
        assert wire.receive(ours) in (b"", wire.frame(Cancel(1))[4:])
        assert wire.receive(ours) == b""
