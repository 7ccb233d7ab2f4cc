"""The real HTTP server over the scripted door: for a test, or as `python -m tests.clients.served [PORT]`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

from parkway.api import pulse
from parkway.api.server import Server, listen, logged
from parkway.config import EngineSettings, Notices, ServerSettings
from tests.api.anthropic_chats import text
from tests.clients.door import OUT_SECONDS, ScriptedDoor


@asynccontextmanager
async def serving(port: int = 0, notices: Notices = "comments") -> AsyncIterator[tuple[ScriptedDoor, Server, str]]:
    """The door, the server and its address. Keepalives come several times while a chat is out."""
    settings = ServerSettings(alias="toy", drain_seconds=0, notices=notices)
    door, server = ScriptedDoor(), Server(EngineSettings(), settings)
    server.begin(door, text())
    with listen("127.0.0.1", port) as listener, patch.object(pulse, "KEEPALIVE_SECONDS", OUT_SECONDS / 4):
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield door, server, "http://{}:{}".format(*listener.getsockname()[:2])
        finally:
            server.should_exit = True
            await task
            door.close()


async def main(port: int) -> None:
    with logged(EngineSettings()):
        async with serving(port) as (_, server, _):
            while not server.should_exit:
                await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
