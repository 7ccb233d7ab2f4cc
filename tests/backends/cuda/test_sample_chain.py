"""The GPU's chains of samplers against the specification, alone and among other rows.

Under the interpreter a row takes a good part of a second, so there are few.
"""

import numpy as np
import pytest
import torch

from parkway.backends.cuda.sample_left import BLOCK
from parkway.backends.reference_sampler import Counters, Step, edited, walked
from parkway.request import SamplingParams
from tests.backends.cuda.interpreted import mend
from tests.backends.cuda.test_sample import FILTERS, ON_GPU, order, random_logits
from tests.backends.cuda.test_sample_edits import EditedRig
from tests.backends.drawn_chains import as_chain, logits_of, no_edits
from tests.backends.drawn_edits import drawn_edits

if not ON_GPU:
    mend()

PLAIN = SamplingParams()
CHAINS: dict[str, list[Step]] = {
    "none": [],
    "temperature": [("temperature", 0.6, 0, 1)],
    "cold": [("temperature", 0.0, 0, 1)],
    "dynamic": [("temperature", 1.0, 0.8, 1.5)],
    "top_k": [("top_k", 20, 0, 0)],
    "top_p": [("top_p", 0.8, 0, 0)],
    "min_p": [("min_p", 0.1, 0, 0), ("temperature", 2, 0, 1)],
    "sigma": [("top_n_sigma", 1.2, 0, 0)],
    "typical": [("typ_p", 0.4, 0, 0)],
    "xtc": [("xtc", 0.7, 0.02, 0), ("top_k", 3, 0, 0)],
    "mirostat": [("temperature", 0.8, 0, 1), ("mirostat", 5, 0, 0)],
    "mirostat 2": [("mirostat_2", 4, 0, 0)],
    "llama-server's": [
        *[("top_n_sigma", 2.0, 0, 0), ("top_k", 100, 0, 0), ("typ_p", 0.9, 0, 0), ("top_p", 0.95, 0, 0)],
        *[("min_p", 0.02, 0, 0), ("xtc", 0.5, 0.1, 0), ("temperature", 1.3, 0.2, 1)],
    ],
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of lanes that are masked
@pytest.mark.parametrize("steps", CHAINS.values(), ids=CHAINS.keys())
def test_tokens_and_surprises_are_those_of_the_specification(device: torch.device, steps: list[Step]) -> None:
    logits = np.stack([logits_of(kind) for kind in (1, 4)])
    rig, edits = EditedRig(logits, device), no_edits(as_chain(steps))
    rows = [0, 1]
    counters = [Counters(7, 1, 2, 3 + i) for i in range(len(rows))]
    orders = [order(PLAIN, each, slot=slot) for slot, each in enumerate(counters)]
    made = rig.run_edited(rows, orders, [edits] * len(rows))
    exact = [walked(logits[row].astype(np.float64), steps, each) for row, each in zip(rows, counters, strict=True)]
    assert made["token"].tolist() == [token for token, _ in exact]
    np.testing.assert_allclose(made["surprise"], [bits for _, bits in exact], atol=1e-5)
    assert rig.last_tokens[: len(rows)].tolist() == made["token"].tolist()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["typical", "llama-server's"])
def test_more_candidates_than_are_looked_at_together(device: torch.device, name: str) -> None:
    logits = random_logits(1, 2 * BLOCK.value + 77)
    edits = no_edits(as_chain(CHAINS[name]))
    made = EditedRig(logits, device).run_edited([0], [order(PLAIN, Counters(5))], [edits])
    assert made["token"] == [walked(logits[0].astype(np.float64), CHAINS[name], Counters(5))[0]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_are_as_they_are_alone_and_reports_are_of_the_logits(device: torch.device) -> None:
    """With a chain, with edits and a chain, with edits, with neither, with a chain and nothing allowed."""
    logits = random_logits(5, 300)
    both = drawn_edits("both", 300, 1)._replace(chain=as_chain(CHAINS["llama-server's"]))
    nothing = drawn_edits("mask", 300, 0)._replace(mask=np.zeros(10, np.uint32), chain=as_chain(CHAINS["xtc"]))
    edits = [no_edits(as_chain(CHAINS["typical"])), both, drawn_edits("numbers", 300, 2), None, nothing]
    orders = [order(FILTERS["all"], Counters(9, position=row), top=4, slot=row) for row in range(5)]
    rig = EditedRig(logits, device)
    made = rig.run_edited(range(5), orders, edits)
    for row in range(5):
        assert rig.run_edited([row], [orders[row]], [edits[row]]).tobytes() == made[row].tobytes()
    exact = edited(logits[1], *both).astype(np.float64)
    assert made[1]["token"] == walked(exact, CHAINS["llama-server's"], Counters(9, position=1))[0]
    assert made[4]["token"] == -1
    looked_up = rig.run([1], [order(PLAIN, Counters(0), target=int(made[1]["token"]), top=4)])
    for name in ("token", "logprob", "top_ids", "top_logprobs"):
        assert looked_up[0][name].tobytes() == made[1][name].tobytes()
