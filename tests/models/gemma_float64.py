"""Makes the float64 reference of Gemma 3 270M: what transformers' class computes of a file's dequantised weights.

python -m tests.models.gemma_float64 FILE TOKENS REFERENCE, where TOKENS is a JSON list of (token ids, first position
that is kept). A minute and 6 GB. Imports nothing of Parkway's.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import MODEL_ARCH, GGUFReader, dequantize, get_tensor_name_map

from tests.models.transformers_models import in_float64

TOP = 5


def main(file: Path, tokens: Path, reference: Path) -> None:
    with in_float64():
        model = model_of(GGUFReader(file))
        sequences = [scored(model, *each) for each in json.loads(tokens.read_text())]
    engine = f"transformers {transformers.__version__}, float64, weights by gguf.dequantize, teacher-forced"
    about = {"model": "gemma-3-270m-q4_k_m.gguf", "engine": engine, "unit": "natural log probability"}
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in sequences)
    reference.write_text(f'{json.dumps(about)[:-1]}, "sequences": [\n{lines}\n]}}\n')


def model_of(file: GGUFReader) -> Any:
    """The class of Gemma 3 for text with the file's sizes and weights."""
    model: Any = transformers.Gemma3ForCausalLM(config_of(file))
    model.eval()
    names = get_tensor_name_map(MODEL_ARCH.GEMMA3, model.config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    for name, parameter in model.named_parameters():
        tensor = tensors.pop(f"{names.get_name(name.removesuffix('.weight'))}.weight")
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
        parameter.data.copy_(torch.from_numpy(values - 1 if "norm" in name else values))
    assert not tensors
    return model


def config_of(file: GGUFReader) -> Any:
    said = {name.removeprefix("gemma3."): field.contents() for name, field in file.fields.items()}
    config: Any = transformers.Gemma3TextConfig
    return config(
        vocab_size=len(said["tokenizer.ggml.tokens"]),
        hidden_size=said["embedding_length"],
        intermediate_size=said["feed_forward_length"],
        num_hidden_layers=said["block_count"],
        num_attention_heads=said["attention.head_count"],
        num_key_value_heads=said["attention.head_count_kv"],
        head_dim=said["attention.key_length"],
        query_pre_attn_scalar=said["attention.key_length"],
        rms_norm_eps=said["attention.layer_norm_rms_epsilon"],
        sliding_window=said["attention.sliding_window"],
        max_position_embeddings=said["context_length"],
        attn_implementation="eager",
    )


def scored(model: Any, token_ids: list[int], first: int) -> dict[str, Any]:
    """The most probable tokens behind every position from `first` on; behind the last there is no token to come."""
    with torch.no_grad():
        logits = model(torch.tensor([token_ids]), use_cache=False).logits[0, first:-1]
    best = logits.log_softmax(-1).topk(TOP)
    rows = [
        {"position": first + row, "top": [(token, round(value, 6)) for token, value in zip(ids, values, strict=True)]}
        for row, (ids, values) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    ]
    return {"token_ids": token_ids, "rows": rows}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
