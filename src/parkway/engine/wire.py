"""The messages of an engine process, as MessagePack on one Unix socket. Knows nothing about who starts whom.

Parent to child: Start, then events. Child to parent: Ready or Failed, then one Report for each step. Each goes as a
frame: its length in four bytes, then itself. Plain sockets, because a messaging library's own threads have to be woken
on both sides for each step, and a wake costs as much as the rest of what a streamed token does.
"""

import socket
from typing import Any

import msgspec

from parkway.config import EngineSettings
from parkway.engine.events import Event
from parkway.report import Facts, Report, Snapshot

SOCKET_NAME = "engine.sock"
_LENGTH_BYTES = 4


class Start(msgspec.Struct, frozen=True):
    path: str
    settings: EngineSettings


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    facts: Facts
    snapshot: Snapshot


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine can't be built; `sentence` says why, for a person."""

    sentence: str


_encode = msgspec.msgpack.Encoder().encode
decode_start = msgspec.msgpack.Decoder(Start).decode
decode_event: Any = msgspec.msgpack.Decoder(Event).decode
decode_answer: Any = msgspec.msgpack.Decoder(Ready | Failed).decode
decode_report = msgspec.msgpack.Decoder(Report).decode


def frame(message: msgspec.Struct) -> bytes:
    """A message as it goes over the socket."""
    body = _encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


def receive(connection: socket.socket) -> bytes:
    """Waits for the next frame of a blocking socket and returns its message; b"" if the other side has gone."""
    try:
        size = int.from_bytes(connection.recv(_LENGTH_BYTES, socket.MSG_WAITALL), "little")
        message = connection.recv(size, socket.MSG_WAITALL)
    except ConnectionError:
        return b""
    return message if len(message) == size else b""


class Frames:
    """Cuts what arrives, in whatever pieces, into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, received: bytes) -> list[bytes]:
        """The messages that are complete with this piece, in order."""
        received = self._rest + received
        messages, begin = [], _LENGTH_BYTES
        while (end := begin + int.from_bytes(received[begin - _LENGTH_BYTES : begin], "little")) <= len(received):
            messages.append(received[begin:end])
            begin = end + _LENGTH_BYTES
        self._rest = received[begin - _LENGTH_BYTES :]
        return messages
