"""GGUF files: what a whole one brings, and that a damaged one is one sentence, whatever the damage."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parkway.config import EngineSettings
from parkway.errors import BadFile, StartError
from parkway.runner.load import load_model
from parkway.weights.gguf import GgufFile
from tests.checkpoints import TOKENS, tiny_llama

ROOM_BYTES = 8 * 2**20
"""Most memory that reading a damaged file may take. The whole file has 200 kB."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("gguf") / "whole.gguf", types=("Q4_1", "F16", "F32", "Q8_0"))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "damaged.gguf"


def header_bytes(path: Path) -> int:
    return int(GGUFReader(path).data_offset)


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < ROOM_BYTES
    finally:
        tracemalloc.stop()


def refusal(path: Path) -> str:
    """What reading the file says, after the file's own name."""
    with pytest.raises(BadFile) as raised:
        _ = GgufFile(path).metadata
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"{path}: ")


def test_tensors_are_the_files_bytes_with_the_outermost_dimension_first(whole: Path) -> None:
    read = GgufFile(whole).tensors
    for tensor in GGUFReader(whole).tensors:
        mine = read[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert mine.type == tensor.tensor_type
        assert mine.raw.dtype == np.uint8
        assert mine.raw.tobytes() == tensor.data.tobytes()
        assert len(mine.raw) == (mine.shape[0] if len(mine.shape) > 1 else 1)


def test_tensors_are_mapped_not_read(whole: Path) -> None:
    file = GgufFile(whole)
    assert all(isinstance(tensor.raw.base, np.memmap | np.ndarray) for tensor in file.tensors.values())
    assert not any(tensor.raw.flags.writeable for tensor in file.tensors.values())


def test_values_are_plain(whole: Path) -> None:
    file = GgufFile(whole)
    assert file.value("general.architecture") == "llama"
    assert file.value("llama.block_count") == 2
    assert file.value("llama.rope.freq_base") == 10000.0
    assert file.value("tokenizer.ggml.tokens") == TOKENS
    assert file.value("tokenizer.ggml.add_bos_token") is False
    assert file.value("there.is.none") is None
    assert file.value("there.is.none", 3) == 3
    assert file.metadata["tokenizer.ggml.tokens"] == TOKENS


def test_arrays_of_every_kind(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "arrays.gguf", "llama")
    arrays: dict[str, list[Any]] = {
        "whole": [1, -2, 3],
        "real": [0.5, 2.0],
        "truth": [True, False],
        "text": ["ä", "", "🙂"],
    }
    for key, value in arrays.items():
        writer.add_array(key, value)
    writer.add_tensor("only", np.ones(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = GgufFile(tmp_path / "arrays.gguf").metadata
    assert {key: read[key] for key in arrays} == arrays


def test_version_2_is_read_like_version_3(whole: Path, scratch: Path) -> None:
    scratch.write_bytes(whole.read_bytes()[:4] + (2).to_bytes(4, "little") + whole.read_bytes()[8:])
    older, newer = GgufFile(scratch), GgufFile(whole)
    assert {name: tensor.raw.tobytes() for name, tensor in older.tensors.items()} == {
        name: tensor.raw.tobytes() for name, tensor in newer.tensors.items()
    }
    assert older.value("tokenizer.ggml.tokens") == TOKENS


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_another_version_is_named(whole: Path, scratch: Path, version: int) -> None:
    scratch.write_bytes(whole.read_bytes()[:4] + version.to_bytes(4, "little") + whole.read_bytes()[8:])
    assert refusal(scratch) == f"GGUF version {version} is not supported, only (2, 3)"


def test_a_wrong_magic_is_named(whole: Path, scratch: Path) -> None:
    scratch.write_bytes(b"GGML" + whole.read_bytes()[4:])
    assert refusal(scratch) == "not a GGUF file: it begins with b'GGML', not b'GGUF'"


@pytest.mark.parametrize("size", range(8))
def test_a_file_without_a_head_is_named(whole: Path, scratch: Path, size: int) -> None:
    scratch.write_bytes(whole.read_bytes()[:size])
    assert refusal(scratch) == f"not a GGUF file: it has only {size} bytes"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.gguf") == "can't be read: No such file or directory"


def test_a_folder_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "can't be read: Is a directory"


def test_every_beginning_of_a_header_is_refused(whole: Path, scratch: Path) -> None:
    content, end = whole.read_bytes(), header_bytes(whole)
    lengths = [*range(8, 300), *range(300, end, 97), *range(end - 40, end + 100)]
    with little_memory():
        for length in lengths:
            scratch.write_bytes(content[:length])
            assert refusal(scratch).startswith("truncated or corrupt GGUF file: ")


@pytest.mark.parametrize("missing", [1, 31, 32, 33, 1000, 50_000])
def test_tensors_that_end_beyond_the_file_are_named(whole: Path, scratch: Path, missing: int) -> None:
    last = max(GGUFReader(whole).tensors, key=lambda tensor: tensor.data_offset)
    end = int(last.data_offset + last.n_bytes)
    scratch.write_bytes(whole.read_bytes()[: end - missing])
    told = refusal(scratch)
    assert told.startswith("truncated or corrupt GGUF file: tensor ")
    assert told.endswith(f" of a file of {end - missing} bytes")


FLIPS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4)
"""Where in the header, as a part of its length, and the byte that is put there."""


@given(FLIPS)
@example([(0.002, 255)])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_headers_load_or_are_one_sentence(whole: Path, scratch: Path, flips: list[tuple[float, int]]) -> None:
    content, end = bytearray(whole.read_bytes()), header_bytes(whole)
    for part, byte in flips:
        content[8 + int(part * (end - 9))] = byte
    scratch.write_bytes(content)
    with little_memory():
        assert "\n" not in loaded_or_told(scratch)


def loaded_or_told(path: Path) -> str:
    try:
        _ = GgufFile(path).metadata
        load_model(path, EngineSettings())
    except StartError as error:
        return str(error)
    return "loaded"
