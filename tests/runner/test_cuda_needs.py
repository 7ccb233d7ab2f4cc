"""What is checked before a model's weights are packed for a GPU: kernels for the shapes of its own attention."""

from pathlib import Path

import pytest
import torch

from parkway.backends import bit_check
from parkway.backends.bit_check import Config, Verdict
from parkway.backends.cuda.attention_subjects import AttentionSubject, Shape, need, shape_of
from parkway.backends.cuda.device import Device
from parkway.config import EngineSettings
from parkway.errors import Unsupported
from parkway.runner import cuda_compile, cuda_load
from parkway.runner.cuda_load import kept_verdict, load_on_gpu
from parkway.weights import open_checkpoint
from tests.checkpoints import tiny_llama
from tests.models.altered import altered
from tests.models.transformers_models import FAMILIES, Tiny

SHAPES = {
    "llama": (Shape(4, 2, 16),),
    "gemma2": (Shape(4, 2, 16, 20, 2.0), Shape(4, 2, 16, 0, 2.0)),
    "gemma3": (Shape(4, 2, 16, 20), Shape(4, 2, 16)),
    "gpt-oss": (Shape(4, 2, 16, 16, 0.0, sinks=True), Shape(4, 2, 16, sinks=True)),
    "qwen35": (Shape(4, 2, 32),),
}


def shapes_of(needs: tuple[str, ...]) -> tuple[Shape, ...]:
    return tuple(shape for shape in map(shape_of, needs) if shape)


@pytest.mark.parametrize(
    "shape", [Shape(32, 8, 128), Shape(8, 4, 256, 512, 50.0), Shape(64, 8, 64, 128, 0.1 + 0.2, sinks=True)]
)
def test_a_shape_is_what_its_need_says(shape: Shape) -> None:
    assert shape_of(need(shape)) == shape


def test_other_needs_name_no_shape() -> None:
    assert need(Shape(32, 8, 128)) == "attention 32 8 128 0 0.0 0"
    assert shapes_of(("Q4_K", cuda_compile.DELTA_NETS, cuda_compile.EXPERTS, cuda_compile.GELU)) == ()


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_needs_the_shapes_of_its_layers_each_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[str, ...]]()

    def kept(kernels: str, needs: tuple[str, ...], device: Device) -> Verdict:
        asked.append(needs)
        return Verdict(0, {}, 0.0)

    monkeypatch.setattr(cuda_load, "kept_verdict", kept)
    folder = Tiny(FAMILIES[name]).save(tmp_path / "tiny")
    model = load_on_gpu(open_checkpoint(folder), EngineSettings(), Device("cpu"))
    (needs,) = asked
    assert shapes_of(needs) == SHAPES[name]
    layers = (layer.mixer.how for layer in model.family.layers if hasattr(layer.mixer, "qkv"))
    assert {(how.window, how.soft_cap, how.sinks is not None) for how in layers} == {
        (shape.window, shape.soft_cap, shape.sinks) for shape in SHAPES[name]
    }


def test_each_shape_has_its_subject(device: torch.device) -> None:
    shapes = SHAPES["gemma2"]
    made = cuda_compile.subjects(device, ("Q4_K", *map(need, shapes)))
    assert [each.shape for each in made if isinstance(each, AttentionSubject)] == list(shapes)


@pytest.mark.parametrize(("window", "checked"), [(4096, 512), (4095, 527), (1024, 512), (512, 512), (128, 128)])
def test_a_window_that_hides_nothing_from_the_chats_is_checked_as_one_that_does(window: int, checked: int) -> None:
    """It stays a multiple of 16 or none, which a compiler tells apart."""
    assert Shape(4, 2, 16, window).reached == Shape(4, 2, 16, checked)


def test_a_verdict_on_one_shape_is_not_taken_for_anothers(monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> None:
    class Counted:
        name, rows, candidates = "attention", 1, ((1,),)

        def suits(self, config: Config, rows: int) -> bool:
            return True

        def output(self, config: Config, rows: slice) -> torch.Tensor:
            return torch.zeros(1)[rows]

    checked = list[tuple[str, ...]]()

    def subjects(device: torch.device, needs: tuple[str, ...]) -> list[bit_check.Subject]:
        checked.append(needs)
        return [Counted()]

    monkeypatch.setattr(cuda_load, "subjects", subjects)
    first, second = ("Q4_K", need(SHAPES["llama"][0])), ("Q4_K", *map(need, SHAPES["gemma3"]))
    for needs in (first, second, first, second):
        kept_verdict("kernels", needs, Device("cpu"))
    assert checked == [first, second]


@pytest.mark.parametrize("width", [8, 24, 272])
def test_heads_that_no_kernel_takes_are_refused_before_anything_is_checked(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(*needs: object) -> Verdict:
        raise AssertionError("checked")

    monkeypatch.setattr(cuda_load, "kept_verdict", kept)
    values = {f"llama.attention.{name}_length": width for name in ("key", "value")} | {"llama.rope.dimension_count": 8}
    path = altered(tiny_llama(tmp_path / "tiny.gguf"), values=values)
    message = f"{path}: heads of {width} values; the GPU's kernels need a multiple of 16, 256 at most"
    with pytest.raises(Unsupported) as refused:
        load_on_gpu(open_checkpoint(path), EngineSettings(), Device("cpu"))
    assert str(refused.value) == message
