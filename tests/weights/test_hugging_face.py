"""Hugging Face folders: what a whole one brings, and that a damaged or foreign one is one sentence that names it."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parkway import cli
from parkway.backends.reference import ReferencePack
from parkway.config import EngineSettings
from parkway.errors import BadFile, StartError, Unsupported
from parkway.models import build_model
from parkway.runner.load import load_model
from parkway.text import ModelText
from parkway.weights import open_checkpoint
from parkway.weights.hugging_face import HuggingFaceFolder
from tests.checkpoints import (
    FAMILIES,
    LLAMA,
    QWEN2,
    QWEN3,
    TEMPLATE,
    drawn,
    own_names,
    safetensors,
    tiny_folder,
    tiny_gguf,
)
from tests.models.runs import chunks, cpu_model, logits_of
from tests.models.whole_sequence import read_safetensors
from tests.weights.test_gguf import little_memory

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("folder") / "Tiny-Llama-0.1B", LLAMA, types=("BF16", "F16", "F32"))


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.fixture(scope="module")
def scratch(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose files tests write over."""
    return Path(shutil.copytree(whole, tmp_path_factory.mktemp("folder") / "scratch"))


def sentence(folder: Path, kind: type[StartError] = BadFile, of: str = "") -> str:
    """What loading the folder says, after the name of the folder or of one of its files."""
    with pytest.raises(kind) as raised:
        load_model(folder, EngineSettings())
    named = f"{folder / of if of else folder}: "
    assert str(raised.value).startswith(named)
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(named)


def with_config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def with_tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The folder, whose weights have been changed by `change` of {name: (type, shape, bytes)}."""
    path = folder / WEIGHTS
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, said in json.loads(content[8:start]).items():
        if name != "__metadata__":
            begin, end = (start + at for at in said["data_offsets"])
            tensors[name] = (said["dtype"], tuple(said["shape"]), content[begin:end])
    change(tensors)
    path.write_bytes(safetensors(tensors))
    return folder


def test_tensors_are_the_files_bytes_under_ggufs_names(whole: Path) -> None:
    values, names = drawn(LLAMA, 0), own_names(LLAMA)
    folder = HuggingFaceFolder(whole)
    decoded = read_safetensors(whole / WEIGHTS)
    assert folder.tensors.keys() == values.keys()
    for name, tensor in folder.tensors.items():
        assert tensor.name == folder.spelled(name) == names[name]
        assert tensor.shape == values[name].shape
        assert len(tensor.raw) == (tensor.shape[0] if len(tensor.shape) > 1 else 1)
        np.testing.assert_allclose(decoded[tensor.name], values[name], atol=0.02)
    kinds = {tensor.type.name for tensor in folder.tensors.values()}
    assert kinds == {"BF16", "F16", "F32"}


def test_tensors_are_mapped_not_read(whole: Path) -> None:
    for tensor in HuggingFaceFolder(whole).tensors.values():
        assert isinstance(tensor.raw, np.memmap)
        assert not tensor.raw.flags.writeable


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_the_gguf_file(family: str, tmp_path: Path) -> None:
    shape = FAMILIES[family]
    folder = open_checkpoint(tiny_folder(tmp_path / "tiny", shape))
    file = open_checkpoint(tiny_gguf(tmp_path / "tiny.gguf", shape))
    for key in ("general.architecture", *(f"{shape.architecture}.{key}" for key in KEYS)):
        assert (
            folder.value(key) == pytest.approx(file.value(key))
            if "rms" in key
            else folder.value(key) == file.value(key)
        )
    assert folder.value("there.is.none", 3) == 3
    assert folder.value("tokenizer.chat_template") == TEMPLATE


KEYS = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "rope.freq_base"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.layer_norm_rms_epsilon"),
)


def test_a_folder_has_its_own_name(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_model(whole, EngineSettings()).name == "Tiny-Llama-0.1B"
    monkeypatch.chdir(whole)
    assert ModelText.from_path(Path(".")).name == "Tiny-Llama-0.1B"


def test_shards_are_the_same_model(whole: Path, tmp_path: Path) -> None:
    parts = tiny_folder(tmp_path / "parts", LLAMA, types=("BF16", "F16", "F32"), shards=3)
    assert not (parts / WEIGHTS).exists()
    one, other = HuggingFaceFolder(whole).tensors, HuggingFaceFolder(parts).tensors
    assert {name: tensor.raw.tobytes() for name, tensor in one.items()} == {
        name: tensor.raw.tobytes() for name, tensor in other.items()
    }


def test_a_tied_head_is_not_loaded_even_where_the_file_repeats_it(tmp_path: Path) -> None:
    def repeat(tensors: dict[str, Any]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]

    folder = with_tensors(tiny_folder(tmp_path / "tied", QWEN3), repeat)
    assert "output.weight" not in HuggingFaceFolder(folder).tensors


def test_a_head_that_is_neither_there_nor_tied_is_named(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "tied", QWEN3, config={"tie_word_embeddings": False})
    assert sentence(folder) == "lm_head.weight is missing, and config.json doesn't tie it to the embedding"


def windows_of(folder: Path) -> list[int]:
    """What each layer sees, 0 where it is all."""
    config = build_model(open_checkpoint(folder), ReferencePack()).config
    return [how.window for how in config.attention]


def test_mistral_is_a_llama_that_may_have_a_window(copy: Path) -> None:
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    assert windows_of(with_config(copy, **mistral, sliding_window=None)) == [0, 0]
    assert windows_of(with_config(copy, **mistral, sliding_window=1000)) == [1000, 1000]
    assert windows_of(with_config(copy, architectures=["LlamaForCausalLM"], sliding_window=1000)) == [0, 0]


WINDOWS: list[tuple[dict[str, Any], list[int]]] = [
    ({"use_sliding_window": False}, [0, 0]),
    ({"use_sliding_window": True, "max_window_layers": 2}, [0, 0]),
    ({"use_sliding_window": True, "max_window_layers": 1}, [0, 512]),
    ({"use_sliding_window": True}, [512, 512]),
    ({"use_sliding_window": True, "layer_types": ["full_attention"] * 2}, [0, 0]),
    ({"layer_types": ["full_attention", "sliding_attention"]}, [0, 512]),
]


@pytest.mark.parametrize(("said", "wanted"), WINDOWS)
def test_windows_of_qwen2(tmp_path: Path, said: dict[str, Any], wanted: list[int]) -> None:
    folder = tiny_folder(tmp_path / "tiny", QWEN2, config={"sliding_window": 512} | said)
    assert windows_of(folder) == wanted


def test_layers_of_another_kind_are_named(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "tiny", QWEN2, config={"layer_types": ["full_attention", "chunked_attention"]})
    assert sentence(folder, Unsupported) == "layers of kind 'chunked_attention' are not supported"


def test_the_text_of_a_model_that_sees_is_taken_and_the_rest_is_left(
    copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = logits_of(cpu_model(copy), chunks(64))

    def dress(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            text = name.replace("model.", "model.language_model.", 1)
            tensors[text] = tensors.pop(name)
        tensors["model.visual.merger.weight"] = ("BF16", (2, 2), bytes(8))

    config = json.loads((copy / "config.json").read_text())
    outer = {"architectures": ["LlamaForConditionalGeneration"], "model_type": "llama", "text_config": config}
    (copy / "config.json").write_text(json.dumps(outer))
    with caplog.at_level("INFO"):
        dressed = cpu_model(with_tensors(copy, dress))
    assert logits_of(dressed, chunks(64)) == plain
    assert "1 tensors for images or sound are not used" in caplog.text


def test_an_adapter_is_named(copy: Path) -> None:
    def adapt(tensors: dict[str, Any]) -> None:
        tensors["model.layers.0.self_attn.q_proj.lora_A.weight"] = ("BF16", (2, 2), bytes(8))

    wanted = "tensor model.layers.0.self_attn.q_proj.lora_A.weight belongs to an adapter (LoRA), which is not supported"
    assert sentence(with_tensors(copy, adapt), Unsupported) == wanted
    (copy / "adapter_config.json").write_text("{}")
    assert sentence(copy, Unsupported).startswith("this is an adapter (LoRA), not a model")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"rope_scaling": {"rope_type": "proportional"}}, "rope scaling 'proportional' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic' is not supported"),
        ({"architectures": ["MixtralForCausalLM"]}, "architecture 'MixtralForCausalLM' is not supported; supported: "),
        ({"architectures": None, "model_type": "gpt2"}, "architecture 'gpt2' is not supported; supported: llama, "),
    ],
)
def test_what_is_not_built_is_named(copy: Path, changes: dict[str, Any], wanted: str) -> None:
    assert sentence(with_config(copy, **changes), Unsupported).startswith(wanted)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantised weights (quantization_config) are not supported",
        ),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
    ],
)
def test_what_config_json_asks_for_in_vain_is_named(copy: Path, changes: dict[str, Any], wanted: str) -> None:
    assert sentence(with_config(copy, **changes), Unsupported, "config.json").startswith(wanted)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"num_hidden_layers": None}, "metadata key num_hidden_layers (config.json) is missing"),
        ({"hidden_size": "wide"}, "metadata key hidden_size (config.json) is 'wide', not a positive number"),
        ({"rms_norm_eps": 0}, "metadata key rms_norm_eps (config.json) is 0, not a positive number"),
        ({"rms_norm_eps": 1e300}, "metadata key rms_norm_eps (config.json) is 1e+300, which 32 bits can't hold"),
        ({"rms_norm_eps": 1e-300}, "metadata key rms_norm_eps (config.json) is 1e-300, which 32 bits can't hold"),
        ({"num_key_value_heads": 3}, "4 heads can't share 3 KV heads"),
        ({"vocab_size": 300}, "metadata key vocab_size (config.json) is 300, but the embedding has 262 rows"),
        ({"num_hidden_layers": 3}, "tensor model.layers.2.input_layernorm.weight is missing"),
        ({"intermediate_size": 128}, "tensor model.layers.0.mlp.gate_proj.weight has shape (96, 64), not (128, 64)"),
        ({"head_dim": 32}, "tensor model.layers.0.self_attn.q_proj.weight has shape (64, 64), not (128, 64)"),
        ({"rope_scaling": {"type": "linear"}}, "metadata key factor (config.json) is missing"),
        ({"rope_scaling": LLAMA3}, "metadata key original_max_position_embeddings (config.json) is missing"),
        (
            {"rope_scaling": LLAMA3 | {"low_freq_factor": 4, "original_max_position_embeddings": 64}},
            "metadata key low_freq_factor (config.json) is 4.0, not below metadata key high_freq_factor",
        ),
    ],
)
def test_what_contradicts_config_json_is_named_as_the_folder_names_it(
    copy: Path, changes: dict[str, Any], wanted: str
) -> None:
    assert sentence(with_config(copy, **changes)).startswith(wanted)


def test_scaling_that_is_no_object_is_named(copy: Path) -> None:
    assert sentence(with_config(copy, rope_scaling=[8]), of="config.json") == "its rope scaling is list, not an object"


@pytest.mark.parametrize("kind", ["F8_E4M3", "I8", "F64", "BOOL"])
def test_a_type_of_another_kind_is_named(copy: Path, kind: str) -> None:
    def retype(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"] = (kind, (64,), bytes(64 * (8 if kind == "F64" else 1)))

    wanted = f"tensor model.norm.weight has type {kind}; supported are BF16, F16, F32"
    assert sentence(with_tensors(copy, retype), Unsupported, WEIGHTS) == wanted


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.q_norm.bias", "model.layers.0.mlp.up_proj.bias"])
def test_a_bias_that_the_forward_pass_would_leave_out_is_named(copy: Path, name: str) -> None:
    def add(tensors: dict[str, Any]) -> None:
        tensors[name] = ("BF16", (64,), bytes(128))

    assert (
        sentence(with_tensors(copy, add), Unsupported)
        == f"tensor {name} is not supported: no bias is, except q, k, v's and their output's in this family"
    )


def test_a_tensor_without_values_is_named(copy: Path) -> None:
    def empty(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"] = ("F32", (0, 4), b"")

    assert sentence(with_tensors(copy, empty), of=WEIGHTS) == "tensor model.norm.weight has the impossible shape (0, 4)"


@pytest.mark.parametrize("shape", [(), (64,), (4, 2, 32)])
def test_an_embedding_that_is_no_matrix_is_named(copy: Path, shape: tuple[int, ...]) -> None:
    def reshape(tensors: dict[str, Any]) -> None:
        tensors["model.embed_tokens.weight"] = ("F32", shape, bytes(4 * int(np.prod(shape))))

    wanted = f"tensor model.embed_tokens.weight has shape {shape}, not rows and columns"
    assert sentence(with_tensors(copy, reshape)) == wanted


def test_a_tensor_of_another_shape_is_named(copy: Path) -> None:
    def reshape(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"] = ("F32", (2, 32), bytes(256))

    assert sentence(with_tensors(copy, reshape)) == "tensor model.norm.weight has shape (2, 32), not (64,)"


def test_a_folder_without_config_or_weights_is_named(copy: Path) -> None:
    (copy / WEIGHTS).unlink()
    assert sentence(copy) == f"there is neither {WEIGHTS} nor {INDEX}"
    (copy / "config.json").unlink()
    assert sentence(copy, of="config.json") == "can't be read: No such file or directory"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1e}', "\x00", "[" * 100_000])
def test_a_config_that_is_no_object_is_named(copy: Path, text: str) -> None:
    (copy / "config.json").write_text(text)
    assert re.match(r"not valid JSON: |holds (list|int), not an object", sentence(copy, of="config.json"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "parts", LLAMA, shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert sentence(folder) == f"model-00002-of-00003.safetensors is missing, which {INDEX} names"


def test_a_tensor_that_is_not_where_the_index_says_is_named(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "parts", LLAMA, shards=2)
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (folder / INDEX).write_text(json.dumps(index))
    told = sentence(folder, of="model-00001-of-00002.safetensors")
    assert told == f"tensor model.extra.weight is missing, which {INDEX} places there"


@pytest.mark.parametrize("file", ["../secret.safetensors", "/etc/passwd", 3, "", ".."])
def test_an_index_never_leads_out_of_its_folder(tmp_path: Path, file: Any) -> None:
    folder = tiny_folder(tmp_path / "parts", LLAMA, shards=2)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": file}}))
    assert sentence(folder, of=INDEX) == f"places a tensor in {file!r}, which is no safetensors file of this folder"


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": []}])
def test_an_index_without_places_is_named(tmp_path: Path, index: dict[str, Any]) -> None:
    folder = tiny_folder(tmp_path / "parts", LLAMA, shards=2)
    (folder / INDEX).write_text(json.dumps(index))
    assert sentence(folder, of=INDEX) == "has no weight_map"


def header_bytes(content: bytes | bytearray) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def test_every_beginning_of_a_file_is_refused(whole: Path, scratch: Path) -> None:
    content = (whole / WEIGHTS).read_bytes()
    end = header_bytes(content)
    lengths = [*range(12), *range(12, end, 97), *range(end - 4, end + 4), len(content) - 1000, len(content) - 1]
    with little_memory():
        for length in lengths:
            (scratch / WEIGHTS).write_bytes(content[:length])
            with pytest.raises(BadFile, match=r"/model\.safetensors: truncated or corrupt safetensors file: "):
                HuggingFaceFolder(scratch)


def test_a_file_with_more_than_its_header_says_is_refused(copy: Path) -> None:
    with (copy / WEIGHTS).open("ab") as file:
        file.write(b"more")
    assert sentence(copy, of=WEIGHTS).startswith("truncated or corrupt safetensors file: ")


FLIPS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4)
"""Where in the damaged part, as a part of its length, and the byte that is put there."""


@given(FLIPS)
@example([(0.0001, 255)])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_headers_load_or_are_one_sentence(whole: Path, scratch: Path, flips: list[tuple[float, int]]) -> None:
    content = bytearray((whole / WEIGHTS).read_bytes())
    end = header_bytes(content)
    for part, byte in flips:
        content[int(part * (end - 1))] = byte
    (scratch / WEIGHTS).write_bytes(content)
    with little_memory():
        assert "\n" not in loaded_or_told(scratch)


@given(FLIPS, st.sampled_from(["config.json", "tokenizer_config.json", "generation_config.json", "tokenizer.json"]))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_json_loads_or_is_one_sentence(
    whole: Path, scratch: Path, flips: list[tuple[float, int]], name: str
) -> None:
    (scratch / WEIGHTS).write_bytes((whole / WEIGHTS).read_bytes())
    content = bytearray((whole / name).read_bytes())
    for part, byte in flips:
        content[int(part * (len(content) - 1))] = byte
    (scratch / name).write_bytes(content)
    with little_memory():
        assert "\n" not in loaded_or_told(scratch)
    shutil.copyfile(whole / name, scratch / name)


MEANT = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.none()),
    st.just({"rope_type": "llama3", "factor": 1e300}),
)


@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values_of_config_json_load_or_are_one_sentence(whole: Path, scratch: Path, data: st.DataObject) -> None:
    own = json.loads((whole / "config.json").read_text())
    more = ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers", "quantization_config")
    changes = data.draw(st.dictionaries(st.sampled_from([*own, *more]), MEANT, min_size=1, max_size=3))
    (scratch / WEIGHTS).write_bytes((whole / WEIGHTS).read_bytes())
    (scratch / "config.json").write_text(json.dumps(own | changes))
    with little_memory():
        assert "\n" not in loaded_or_told(scratch)


def loaded_or_told(folder: Path) -> str:
    try:
        ModelText.from_path(folder)
        load_model(folder, EngineSettings())
    except StartError as error:
        return str(error)
    return "loaded"


def test_the_command_line_says_the_sentence(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / WEIGHTS).write_bytes(b"short")
    assert cli.main(["inspect", str(copy)]) == 2
    assert capsys.readouterr().err.startswith(f"parkway: {copy / WEIGHTS}: truncated or corrupt safetensors file: ")


def test_inspect_tells_what_is_in_the_folder(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(whole)]) == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert {"Tiny-Llama-0.1B", "architecture llama", "vocabulary 262", "tokenizer tokenizer.json"} <= set(lines)
    assert "chat template yes, chatml" in lines
    assert any(re.fullmatch(r"BF16 \d+ [\d,]+ [\d,]+ 16\.00", line) for line in lines)
