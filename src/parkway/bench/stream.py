"""A client that costs next to nothing: it keeps the bytes of a streamed answer and looks at them when it is over."""

import json
import socket
from contextlib import suppress
from typing import Any

_READ_BYTES = 1 << 18


class Stream:
    """One streamed answer over a connection of its own."""

    def __init__(self, address: tuple[str, int], path: str, body: dict[str, Any]) -> None:
        self.received = bytearray()
        self.ended = False
        self._socket = socket.create_connection(address)
        content = json.dumps(body | {"stream": True}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._socket.sendall(head.encode() + content)

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Takes what has come until now; never waits."""
        if self.ended:
            return
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while not self.ended:
                self._take()

    def wait(self) -> None:
        """Waits for more, or for the end."""
        self._socket.setblocking(True)
        self._take()

    def finish(self) -> None:
        """Waits for the end. Raises RuntimeError unless the answer is as long as was asked for."""
        while not self.ended:
            self.wait()
        self.check()

    def check(self) -> None:
        """Raises RuntimeError unless the answer is whole and as long as was asked for."""
        complete = b"data: [DONE]\n\n" in self.received and b'"finish_reason":"length"' in self.received
        if not (self.received.startswith(b"HTTP/1.1 200") and complete):
            raise RuntimeError(f"the server answered: {self.received[-500:].decode(errors='replace')}")

    def close(self) -> None:
        """Hangs up, which ends the answer at the server."""
        self._socket.close()

    def _take(self) -> None:
        received = self._socket.recv(_READ_BYTES)
        self.received += received
        if not received:
            self.ended = True
            self._socket.close()
