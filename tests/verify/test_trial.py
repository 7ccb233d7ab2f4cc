"""One configuration after the other on a tiny model: it does what its name says."""

import pytest

from parkway.config import EngineSettings
from parkway.runner.load import load_model
from parkway.verify.cast import SIZES, Cast
from parkway.verify.configurations import AXES, covering
from parkway.verify.engines import engines_on
from parkway.verify.traffic import occasions
from parkway.verify.trial import Trial, answers_alone, attempt
from tests.checkpoints import tiny_llama

SIZE = SIZES["cpu"]["quick"]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    settings = EngineSettings(device="cpu")
    model = load_model(tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",)), settings)
    cast = Cast.drawn(SIZE, model.vocab_size, seed=0)
    tried = occasions(cast, covering(AXES["cpu"], 0))
    engines = engines_on("cpu", model, settings, cast.chats, tried)
    alone = dict(answers_alone(engines, cast.chats))
    return [attempt(engines, occasion, alone) for occasion in tried]


def test_chats_are_parked_and_come_back_as_they_should(trials: list[Trial]) -> None:
    for trial in trials:
        configuration, counts = trial.configuration, trial.counts
        assert not trial.missed
        assert (counts.parks >= SIZE.cycles) == (configuration.park_every > 0)
        assert bool(counts.restores) == (configuration.kept in ("copied", "1 MiB"))  # of these pages a MiB holds many
        assert bool(counts.recomputes) == (configuration.kept == "recomputed")
        assert bool(counts.prompt_parks) <= configuration.squeezed
    assert any(trial.counts.prompt_parks for trial in trials)


def test_pages_are_found_where_a_twin_left_them(trials: list[Trial]) -> None:
    found = [trial.configuration.prefix for trial in trials if trial.counts.cached_tokens]
    assert found.count("cold") == 0
    assert found.count("cached") >= 2
    assert found.count("shared") >= 2


def test_everybody_is_compared(trials: list[Trial]) -> None:
    for trial in trials:
        before = trial.chats - 1 - trial.configuration.beside - trial.configuration.squeezed
        assert before in ((0,) if trial.configuration.prefix == "cold" else (1, 2))
        assert (
            trial.compared_steps >= SIZE.answer_tokens(trial.configuration.park_every) + 3 * trial.configuration.beside
        )
        assert not trial.differences
