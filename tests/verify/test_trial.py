"""One configuration after the other on a tiny model: it does what its name says."""

import pytest

from parkway.config import EngineSettings
from parkway.runner.load import load_model
from parkway.verify.configurations import AXES, covering
from parkway.verify.engines import engines_on
from parkway.verify.traffic import SIZES, Cast
from parkway.verify.trial import Trial, answers_alone, attempt
from tests.checkpoints import tiny_llama

SIZE = SIZES["cpu"]["quick"]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    settings = EngineSettings(device="cpu")
    model = load_model(tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",)), settings)
    cast = Cast.drawn(SIZE, model.vocab_size, seed=0)
    occasions = cast.occasions(covering(AXES["cpu"], 0))
    engines = engines_on("cpu", model, settings, cast.chats, occasions)
    alone = dict(answers_alone(engines, cast.chats))
    return [attempt(engines, occasion, alone) for occasion in occasions]


def test_chats_are_replayed_where_they_should_be(trials: list[Trial]) -> None:
    for trial in trials:
        assert bool(trial.given_back) == (trial.configuration.replayed == "often")


def test_pages_are_found_where_a_twin_left_them(trials: list[Trial]) -> None:
    found = [trial.configuration.prefix for trial in trials if trial.cached_tokens]
    assert found.count("cold") == 0
    assert found.count("cached") >= 2
    assert found.count("shared") >= 2


def test_everybody_is_compared(trials: list[Trial]) -> None:
    for trial in trials:
        before = trial.chats - 1 - trial.configuration.beside
        assert before in ((0,) if trial.configuration.prefix == "cold" else (1, 2))
        assert trial.compared_steps >= SIZE.subject_answer + 3 * trial.configuration.beside
        assert not trial.differences
