"""GGUF files in several parts: one checkpoint, and any part that doesn't belong to it is named."""

import shutil
from pathlib import Path

import pytest
from gguf import GGUFReader

from parkway.cli import main
from parkway.errors import BadFile
from parkway.weights.gguf import GgufFile
from tests.checkpoints import LLAMA, QWEN3, tiny_gguf

PARTS = 3
TYPES = ("Q4_1", "F16")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split")
    tiny_gguf(folder / "whole.gguf", LLAMA, types=TYPES)
    tiny_gguf(folder / "model.gguf", LLAMA, types=TYPES, part_tensors=8)
    tiny_gguf(folder / "other.gguf", QWEN3, types=TYPES, part_tensors=8)
    return folder


@pytest.fixture
def folder(split: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return Path(shutil.copytree(split, tmp_path / "split"))


def part(number: int, of: int = PARTS, name: str = "model") -> str:
    return f"{name}-{number:05}-of-{of:05}.gguf"


def patched(path: Path, key: str, value: int) -> None:
    """Changes a number of the file's metadata."""
    at = GGUFReader(path).fields[key]
    value_at = at.offset + sum(int(piece.nbytes) for piece in at.parts[:-1])
    content = bytearray(path.read_bytes())
    size = at.parts[-1].nbytes
    content[value_at : value_at + size] = value.to_bytes(size, "little")
    path.write_bytes(content)


def refusal(path: Path) -> str:
    with pytest.raises(BadFile) as raised:
        GgufFile(path)
    return str(raised.value).removeprefix(f"{path.parent}/")


def test_all_parts_are_one_checkpoint(split: Path) -> None:
    whole, parts = GgufFile(split / "whole.gguf"), GgufFile(split / part(1))
    assert len(list(split.glob("model-*"))) == PARTS
    assert {name: tensor.raw.tobytes() for name, tensor in parts.tensors.items()} == {
        name: tensor.raw.tobytes() for name, tensor in whole.tensors.items()
    }
    told = [
        {k: v for k, v in each.metadata.items() if not k.startswith(("GGUF.", "split."))} for each in (whole, parts)
    ]
    assert told[0] == told[1]
    assert (parts.identity, parts.name) == (whole.identity, "model")


def test_inspect_tells_of_all_parts(split: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for name in ("whole.gguf", part(1)):
        assert main(["inspect", str(split / name)]) == 0
        told.append(capsys.readouterr().out.split("\n")[1:])  # the first line is the file's name
    assert told[0] == told[1]


@pytest.mark.parametrize("number", [2, 3])
def test_another_part_than_the_first_names_the_first(split: Path, number: int) -> None:
    assert refusal(split / part(number)) == f"{part(number)}: part {number} of 3: open the first, {part(1)}"


def test_a_part_that_has_another_name_names_no_first(folder: Path) -> None:
    other = (folder / part(2)).rename(folder / "second.gguf")
    assert refusal(other) == "second.gguf: part 2 of 3: open the first"
    first = (folder / part(1)).rename(folder / "first.gguf")
    assert refusal(first) == "first.gguf: part 1 of 3, so its name must end with -00001-of-00003.gguf"


@pytest.mark.parametrize("number", [2, 3])
def test_a_missing_part_is_named(folder: Path, number: int) -> None:
    (folder / part(number)).unlink()
    assert refusal(folder / part(1)) == f"{part(number)}: can't be read: No such file or directory"


@pytest.mark.parametrize("count", [2, 4])
def test_a_wrong_count_is_named(folder: Path, count: int) -> None:
    patched(folder / part(3), "split.count", count)
    assert refusal(folder / part(1)) == f"{part(3)}: not part 3 of 3, but part 3 of {count}"


def test_a_first_part_with_a_wrong_count_is_named(folder: Path) -> None:
    patched(folder / part(1), "split.count", 5)
    assert refusal(folder / part(1)) == f"{part(1)}: part 1 of 5, so its name must end with -00001-of-00005.gguf"


def test_a_part_in_the_place_of_another_is_named(folder: Path) -> None:
    shutil.copy(folder / part(3), folder / part(2))
    assert refusal(folder / part(1)) == f"{part(2)}: not part 2 of 3, but part 3 of 3"


def test_a_part_of_another_model_is_named(folder: Path) -> None:
    shutil.copy(folder / part(2, name="other"), folder / part(2))
    told = f"{part(2)}: a part of another model: it tells of 24 tensors, {part(1)} of 21"
    assert refusal(folder / part(1)) == told


def test_a_tensor_that_is_there_twice_is_named(folder: Path) -> None:
    shutil.copy(folder / part(1), folder / part(2))
    patched(folder / part(2), "split.no", 1)
    assert refusal(folder / part(1)) == f"{part(2)}: a part of another model: token_embd.weight is in {part(1)} too"


def test_parts_that_lack_a_tensor(folder: Path) -> None:
    for number in (1, 2, 3):
        patched(folder / part(number), "split.tensors.count", 22)
    assert refusal(folder / part(1)) == f"{part(1)}: all parts together have 21 tensors, not 22"


def test_a_damaged_part_is_named(folder: Path) -> None:
    path = folder / part(2)
    path.write_bytes(path.read_bytes()[:100])
    assert refusal(folder / part(1)).startswith(f"{part(2)}: truncated or corrupt GGUF file: ")
