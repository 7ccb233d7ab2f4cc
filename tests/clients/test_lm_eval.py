"""lm-eval's requests: log-likelihoods are the sums of the log-probabilities that the engine told, parked or not.

Runs where lm-eval is, which is no part of `make test-clients`: `CLIENTS_PYTHON=… pytest tests/clients/test_lm_eval.py`.
"""

import asyncio
import json

from tests.api.fake import scored
from tests.clients.door import ANSWERS
from tests.clients.served import serving
from tests.clients.test_clients import ROOT, Program, command_of

LM_EVAL = Program("lm_eval_run", "lm_eval", ())


async def _told(command: list[str]) -> str:
    async with serving() as (_, _, url):
        process = await asyncio.create_subprocess_exec(*command, url, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        stdout, _ = await process.communicate()
        assert process.returncode == 0
        return stdout.decode()


def _likelihood(text: str) -> float:
    """Of the text's tokens, none of which the scripted engine finds likeliest."""
    return sum(row.logprob for row in scored(list(text.encode()), 1, 1))


def test_sums_are_those_of_the_engine() -> None:
    told = json.loads(asyncio.run(_told(command_of(LM_EVAL))))
    both = [[[_likelihood(text), False]] for text in ("b", "é日")]
    assert told["choose"] == [both, both]
    assert told["tell"] == [[[ANSWERS["text"].partition("!")[0]]]] * 2
    assert told["roll"] == [[[_likelihood(text)]] for text in ("first A", "never A")]
