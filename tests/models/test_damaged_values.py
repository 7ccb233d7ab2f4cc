"""Metadata that makes no sense, of every family: it loads, or one sentence says what is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parkway.errors import StartError
from parkway.models.summary import model_facts
from parkway.weights import open_checkpoint
from parkway.weights.checkpoint import Checkpoint
from tests.models.converted import as_gguf
from tests.models.prediction_heads import with_head
from tests.models.transformers_models import FAMILIES, Tiny

HYBRIDS = [FAMILIES[name] for name in ("qwen3next", "qwen35moe")]
NAMES = ("llama 3", "smollm3", "granite", "gemma2", "gemma3", "phi3 long", "gpt-oss", "qwen3next", "qwen35moe")
MEANT = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.sampled_from([10**400, 2**40, 1e300, 1e-300, float("nan"), float("inf")]),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.none(), st.text(max_size=2), st.floats(), st.integers(-1, 3)), max_size=8),
    st.sampled_from(["yarn", "longrope", "linear", "llama3", "dynamic", "mrope", ["sliding_attention"] * 8]),
    st.just({"rope_type": "yarn", "factor": 1e300}),
    st.just({"full_attention": {"rope_type": "dynamic", "alpha": 1e300, "factor": 2}}),
    st.just({"sliding_attention": 3}),
)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


class Changed:
    """A checkpoint some of whose values are others."""

    def __init__(self, checkpoint: Checkpoint, values: dict[str, Any]) -> None:
        self._checkpoint, self._values = checkpoint, values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checkpoint, name)

    def value(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, self._checkpoint.value(key, default))


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = Tiny(FAMILIES[request.param])
    return saved(tiny, tmp_path_factory.mktemp("saved") / "tiny")


@pytest.fixture(scope="module", params=NAMES)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    at, tiny = tmp_path_factory.mktemp("saved"), Tiny(FAMILIES[request.param])
    return open_checkpoint(as_gguf(tiny, saved(tiny, at / "tiny"), at / "tiny.gguf"))


def saved(tiny: Tiny, folder: Path) -> Path:
    """With a prediction head where a family may have one."""
    return with_head(tiny, tiny.save(folder)) if tiny.family in HYBRIDS else tiny.save(folder)


@quick
@given(data=st.data())
def test_any_metadata_of_a_gguf_file(file: Checkpoint, data: st.DataObject) -> None:
    keys = [key for key in file.metadata if key.startswith(str(file.value("general.architecture")))]
    more = ("rope.scaling.type", "rope.scaling.factor", "layer_types", "nextn_predict_layers", "rope.scaling.alpha")
    keys += [f"{file.value('general.architecture')}.{key}" for key in more]
    changes = data.draw(st.dictionaries(st.sampled_from(keys), MEANT, min_size=1, max_size=3))
    told = model_facts(Changed(file, changes))
    assert "\n" not in "".join(told.values())


@quick
@given(data=st.data())
def test_any_values_of_config_json(folder: Path, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    own = json.loads((folder / "config.json").read_text())
    more = ("sliding_window_pattern", "use_sliding_window", "text_config", "partial_rotary_factor", "rope_scaling")
    changes = data.draw(st.dictionaries(st.sampled_from([*own, *more]), MEANT, min_size=1, max_size=3))
    inner = data.draw(st.dictionaries(st.sampled_from(["rope_type", "factor", "long_factor", "alpha"]), MEANT))
    rope = own.get("rope_parameters")
    said = own | ({"rope_parameters": rope | inner} if isinstance(rope, dict) else {}) | changes
    assert "\n" not in told_of(folder, said, tmp_path_factory.mktemp("copies") / "copy")


@pytest.mark.parametrize("value", [1e300, 1e-300])
def test_every_number_of_config_json_that_32_bits_cannot_hold(folder: Path, value: float, tmp_path: Path) -> None:
    own = json.loads((folder / "config.json").read_text())
    numbers = [key for key, found in own.items() if isinstance(found, float)]
    assert numbers
    for key in numbers:
        assert "\n" not in told_of(folder, own | {key: value}, tmp_path / key)


def told_of(folder: Path, config: dict[str, Any], copy: Path) -> str:
    """Of the folder with another config.json, at `copy` while it is looked at."""
    copy.mkdir()
    (copy / "model.safetensors").symlink_to(folder / "model.safetensors")
    (copy / "config.json").write_text(json.dumps(config))
    said = told(copy)
    shutil.rmtree(copy)
    return said


def told(folder: Path) -> str:
    try:
        return "".join(model_facts(open_checkpoint(folder)).values())
    except StartError as error:
        return str(error)
