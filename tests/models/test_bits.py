"""The exactness contract on a whole small model: whatever is changed around a chat, its logits keep their bits."""

from pathlib import Path

import numpy as np
import pytest

from tests.backends.rig import ISAS, TABLES
from tests.checkpoints import FAMILIES, tiny_gguf
from tests.models.runs import CHATS, Logits, chunks, cpu_model, logits_of, whole

TYPES = {
    "llama": ("Q4_1", "Q8_0", "F16", "Q4_0", "F32"),
    "qwen2": ("BF16", "Q8_0", "Q4_1"),
    "qwen3": ("Q4_0", "F32", "Q8_0", "BF16"),
}
pytestmark = pytest.mark.parametrize("activations", ["int8", "f32"])


@pytest.fixture(scope="module", params=TYPES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family = request.param
    path = tmp_path_factory.mktemp("model") / f"{family}.gguf"
    return tiny_gguf(path, FAMILIES[family], types=TYPES[family], seed=5)


@pytest.fixture
def expected(path: Path, activations: str) -> Logits:
    """All chats in one step, one thread, clean pages."""
    return logits_of(cpu_model(path, activations=activations), whole())


@pytest.mark.parametrize("tokens", [1, 7, 64, 100])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_and_threads(path: Path, activations: str, expected: Logits, tokens: int, threads: int) -> None:
    assert logits_of(cpu_model(path, activations=activations, threads=threads), chunks(tokens)) == expected


def test_each_chat_alone(path: Path, activations: str, expected: Logits) -> None:
    rig = cpu_model(path, activations=activations)
    alone = logits_of(rig, ([(chat, position) for position in range(length)] for chat, length in CHATS))
    assert alone == expected


def test_the_order_of_rows(path: Path, activations: str, expected: Logits) -> None:
    rig = cpu_model(path, activations=activations)
    (places,) = whole()
    for seed in range(3):
        shuffled = [places[i] for i in np.random.default_rng(seed).permutation(len(places))]
        assert logits_of(rig, [shuffled]) == expected


def test_where_pages_lie(path: Path, activations: str, expected: Logits) -> None:
    rig = cpu_model(path, activations=activations)
    for seed in range(3):
        pages = np.random.default_rng(seed).permutation(24)[: 6 * len(TABLES)]
        assert logits_of(rig, chunks(64), pages.reshape(len(TABLES), 6).tolist()) == expected


@pytest.mark.parametrize("garbage", [0xFF, 0x7C, 0xFC])
def test_memory_that_nobody_wrote(path: Path, activations: str, expected: Logits, garbage: int) -> None:
    for steps in (whole(), chunks(7), chunks(1)):
        rig = cpu_model(path, activations=activations, threads=3)
        rig.pool.array()[:] = garbage
        assert logits_of(rig, steps) == expected


def test_computed_again_over_its_own_pages(path: Path, activations: str, expected: Logits) -> None:
    rig = cpu_model(path, activations=activations)
    assert [logits_of(rig, steps) == expected for steps in (whole(), chunks(7), whole())] == [True] * 3


@pytest.mark.parametrize("isa", ISAS[:-1])
def test_instruction_sets(path: Path, activations: str, expected: Logits, isa: str) -> None:
    assert logits_of(cpu_model(path, activations=activations, isa=isa), chunks(64)) == expected


def test_another_token_early_in_a_chat_is_seen(path: Path, activations: str, expected: Logits) -> None:
    """The comparison above can fail: one key of position 0 changed is in the logits of every later position."""
    rig = cpu_model(path, activations=activations)
    logits_of(rig, whole())
    layer_one = TABLES[0][0] * rig.pool.size_bytes // 24
    rig.pool.array()[layer_one] ^= 0x40
    changed = logits_of(rig, [[(0, position)] for position in range(100, 150)])
    assert all(changed[place] != expected[place] for place in changed)
