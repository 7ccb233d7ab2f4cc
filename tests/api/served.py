"""A server process over the fake door: `python -m tests.api.served ANSWER SECONDS_A_STEP DRAIN_SECONDS [DEATH]`."""

import asyncio
import sys

from parkway.api.server import Server, listen, logged
from parkway.config import EngineSettings, ServerSettings
from tests.api.fake import FakeDoor, byte_text


async def main(answer: str, seconds: str, drain_seconds: str, death: str | None = None) -> int:
    door = FakeDoor(answer, seconds=float(seconds))
    server = Server(EngineSettings(), ServerSettings(drain_seconds=float(drain_seconds)))
    server.begin(door, byte_text())
    dying = asyncio.create_task(server.end_with(door.died))
    if death:
        asyncio.get_running_loop().call_later(0.5, door.die, death)
    with logged(EngineSettings(log="warnings")):
        await server.serve([listen("127.0.0.1", 0)])
    dying.cancel()
    door.close()
    return server.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
