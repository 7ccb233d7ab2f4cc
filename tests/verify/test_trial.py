"""One configuration after the other on a tiny model: it does what its name says."""

import pytest

from parkway.config import EngineSettings
from parkway.runner.load import load_model
from parkway.verify.configurations import covering
from parkway.verify.traffic import SIZES, Cast
from parkway.verify.trial import Trial, answers_alone, attempt
from tests.checkpoints import tiny_llama


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    model = load_model(tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",)), EngineSettings())
    cast = Cast.drawn(SIZES["quick"], model.vocab_size, seed=0)
    alone = dict(answers_alone(model, cast.chats))
    return [attempt(model, occasion, alone) for occasion in cast.occasions(covering(0))]


def test_chats_are_replayed_where_they_should_be(trials: list[Trial]) -> None:
    for trial in trials:
        assert bool(trial.given_back) == (trial.configuration.replayed == "often")


def test_everybody_is_compared(trials: list[Trial]) -> None:
    for trial in trials:
        assert trial.chats == 1 + trial.configuration.neighbours
        assert trial.compared_steps >= SIZES["quick"].subject_answer + 3 * trial.configuration.neighbours
        assert not trial.differences
