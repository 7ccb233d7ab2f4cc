"""The messages of an engine process, as MessagePack on one ZeroMQ socket. Knows nothing about who starts whom.

Parent to child: Start, then events. Child to parent: Ready or Failed, then one Report for each step.
"""

from pathlib import Path
from typing import Any

import msgspec
import zmq

from parkway.config import EngineSettings
from parkway.engine.events import Event
from parkway.request import Facts, Report

SOCKET_NAME = "engine.sock"

_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)  # plain ints: arithmetic on the enums costs more than the call


class Start(msgspec.Struct, frozen=True):
    path: str
    settings: EngineSettings


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    facts: Facts


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine can't be built; `sentence` says why, for a person."""

    sentence: str


encode = msgspec.msgpack.Encoder().encode
decode_start = msgspec.msgpack.Decoder(Start).decode
decode_event: Any = msgspec.msgpack.Decoder(Event).decode
decode_answer: Any = msgspec.msgpack.Decoder(Ready | Failed).decode
decode_report = msgspec.msgpack.Decoder(Report).decode


def address(folder: Path) -> str:
    return f"ipc://{folder / SOCKET_NAME}"


def open_socket() -> zmq.Socket[bytes]:
    """For one peer: the child binds, the parent connects and may send at once.

    It never blocks on a slow reader and never delays the end of the process.
    """
    socket = zmq.Context(io_threads=1).socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.RECONNECT_IVL, 10)  # ms, until the child is there
    return socket


def has_message(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.get(_EVENTS)) & _POLLIN)
