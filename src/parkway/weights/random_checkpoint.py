"""Random weights in the shape of a model, for measuring: made when they are read, the same for the same seed.

A tensor's rows are windows, at random places, of one pool of random values: making values is slow, copying them is not.
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, TokenType
from gguf.quants import dequantize, quantize
from numpy.lib.stride_tricks import as_strided
from tokenizers.pre_tokenizers import ByteLevel

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import MadeTensor, RawTensor
from parkway.weights.shapes import SHAPES, Shape

Bytes = npt.NDArray[np.uint8]

_SCHEME = "shape:"
_POOL_BYTES = 1 << 25
_FLOATS = ("BF16", "F16", "F32")
_SCALES: Mapping[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 1.0),),
    "Q4_1": ((0, 1.0), (2, -7.5)),
    "Q5_0": ((0, 1.0),),
    "Q5_1": ((0, 1.0), (2, -15.5)),
    "Q8_0": ((0, 1.0),),
    "Q2_K": ((80, 1.0), (82, 1.5)),
    "Q3_K": ((108, 1.0),),
    "Q4_K": ((0, 1.0), (2, 7.5)),
    "Q5_K": ((0, 1.0), (2, 15.5)),
    "Q6_K": ((208, 1.0),),
    "IQ4_NL": ((0, 1.0),),
    "IQ4_XS": ((0, 1.0),),
    "MXFP4": (),
}
"""Where a block has fp16 numbers that all its values are proportional to, and their sizes beside each other: such
that the values' mean is near 0. MXFP4 has a power of two instead."""
_MIXED = "Q4_K_M"
_FINER = re.compile(r".*\.attn_v\..*|.*[02468]\.ffn_down.*|output\.weight|token_embd\..*")
_FINE = re.compile(r".*\.attn_qkv\..*")
"""What the mixed recipe has in Q6_K and in Q5_K, much as files in use do; the rest is Q4_K."""
_ALWAYS_FLOAT = ("ssm_conv1d", "ffn_gate_inp")
"""What no recipe quantises: it is small, and much depends on it."""
LONG_MEMORY = -0.01
"""What delta nets forget by: so little that a wrong state shows for hundreds of tokens."""
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def is_shape(path: Path) -> bool:
    return str(path).startswith(_SCHEME)


class RandomCheckpoint:
    """A `Checkpoint` with matrices of one type, or of a recipe's, N(0, 1 / inputs), and a vocabulary of bytes and
    made-up words.

    Raises Unsupported for a type that is not made, or whose blocks don't fit the shape.
    """

    def __init__(self, shape: Shape, kind: str = "BF16", seed: int = 0, name: str = "random") -> None:
        if kind not in _made():
            raise Unsupported(f"{name}: random weights of type {kind!r} are not made, only {', '.join(_made())}")
        self.path = Path(f"{_SCHEME}{name}:{kind}")
        self.name = f"{name}-{kind}"
        self.identity = f"{shape} {kind} {seed}"
        self._shape, self._seed, self._kind = shape, seed, kind
        self._pools: dict[tuple[GGMLQuantizationType, int], Bytes] = {}
        drawn = [self._matrix(*matrix) for matrix in shape.matrices]
        drawn += [self._vector(*norm, mean=1.0) for norm in shape.norms]
        drawn += [self._vector(*bias, mean=0.0) for bias in shape.biases]
        drawn += [self._vector(*decay, mean=LONG_MEMORY, deviation=-LONG_MEMORY / 8) for decay in shape.decays]
        self.tensors: Mapping[str, RawTensor] = {tensor.name: tensor for tensor in drawn}

    @classmethod
    def named(cls, path: Path) -> "RandomCheckpoint":
        """What `shape:NAME` or `shape:NAME:TYPE` asks for. Raises BadFile where there is none of that name."""
        name, _, kind = str(path).removeprefix(_SCHEME).partition(":")
        if name not in SHAPES:
            raise BadFile(path, f"there is no shape {name!r}; there are {', '.join(SHAPES)}")
        return cls(SHAPES[name], kind or "BF16", name=name)

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        tokens = _tokens(self._shape.vocabulary)
        plain = len(tokens) - len(_SPECIALS)
        return self._shape.values | {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [TokenType.NORMAL] * plain + [TokenType.CONTROL] * len(_SPECIALS),
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
            "tokenizer.chat_template": _TEMPLATE,
        }

    def value(self, key: str, default: Any = None) -> Any:
        known = self.metadata if key.startswith("tokenizer.") else self._shape.values
        return known.get(key, default)

    def spelled(self, key: str) -> str:
        return key

    def _matrix(self, name: str, shape: tuple[int, ...]) -> MadeTensor:
        kind, columns = self._type(name), shape[-1]
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if columns % block:
            raise Unsupported(f"{self.path}: {name} has rows of {columns} values, no multiple of {block}")
        row_bytes, rows = columns // block * block_bytes, math.prod(shape[:-1])

        def make() -> Bytes:
            pool = self._pool(kind, columns)
            windows = (pool.size - row_bytes) // block_bytes + 1
            places = np.random.default_rng([self._seed, *name.encode()]).integers(0, windows, rows)
            return as_strided(pool, (windows, row_bytes), (block_bytes, 1), writeable=False)[places]

        return MadeTensor(name, shape, kind, make)

    def _type(self, name: str) -> GGMLQuantizationType:
        if self._kind not in _FLOATS and any(part in name for part in _ALWAYS_FLOAT):
            return GGMLQuantizationType.F32
        if self._kind == _MIXED:
            kind = "Q6_K" if _FINER.fullmatch(name) else "Q5_K" if _FINE.fullmatch(name) else "Q4_K"
            return GGMLQuantizationType[kind]
        return GGMLQuantizationType[self._kind]

    def _vector(self, name: str, width: int, mean: float, deviation: float = 0.1) -> MadeTensor:
        def make() -> Bytes:
            drawn = np.random.default_rng([self._seed, *name.encode()]).standard_normal((1, width), np.float32)
            return (np.float32(mean) + np.float32(deviation) * drawn).view(np.uint8)

        return MadeTensor(name, (width,), GGMLQuantizationType.F32, make)

    def _pool(self, kind: GGMLQuantizationType, columns: int) -> Bytes:
        """Random values for matrices of so many columns, as bytes; kept, since all such matrices share it."""
        if (kind, columns) not in self._pools:
            random = np.random.default_rng([self._seed, columns])
            self._pools[kind, columns] = _values(kind, random, 1 / np.sqrt(columns)).reshape(-1)
        return self._pools[kind, columns]


def _made() -> tuple[str, ...]:
    return (*_FLOATS, *_SCALES, _MIXED)


def _values(kind: GGMLQuantizationType, random: np.random.Generator, deviation: float) -> Bytes:
    """_POOL_BYTES of values of a type with this standard deviation, uint8 [blocks, block bytes]."""
    block_bytes = GGML_QUANT_SIZES[kind][1]
    count = _POOL_BYTES // block_bytes
    if kind.name in _FLOATS:
        drawn = random.standard_normal((1, count), np.float32) * np.float32(deviation)
        return np.asarray(quantize(drawn, kind)).view(np.uint8)
    blocks, sizes = random.integers(0, 256, (count, block_bytes), np.uint8), random.uniform(0.5, 1.5, (count, 1))
    _scale(blocks, kind, sizes, random)
    sample = dequantize(blocks[:1024], kind)
    _scale(blocks, kind, sizes * (deviation / sample.std()), random)
    return blocks


def _scale(
    blocks: Bytes, kind: GGMLQuantizationType, sizes: npt.NDArray[np.float64], random: np.random.Generator
) -> None:
    for at, part in _SCALES[kind.name]:
        blocks[:, at : at + 2] = (sizes * part).astype(np.float16).view(np.uint8)
    if kind.name == "MXFP4":
        blocks[:, :1] = _exponents(sizes, random)


def _exponents(sizes: npt.NDArray[np.float64], random: np.random.Generator) -> Bytes:
    """MXFP4's exponents: one of the two powers of two around each size, such that squares are right on average."""
    lower = np.floor(np.log2(sizes))
    upper_share = ((sizes / np.exp2(lower)) ** 2 - 1) / 3
    return (lower + (random.random(sizes.shape) < upper_share) + 128).astype(np.uint8)


def _tokens(count: int) -> list[str]:
    """A token for every byte, words that no merge makes, and those that a chat needs."""
    words = ("Ġ" + "".join(letters) for letters in product(ascii_lowercase, repeat=4))
    made = sorted(ByteLevel.alphabet())
    made += [word for word, _ in zip(words, range(count - len(made) - len(_SPECIALS)), strict=False)]
    return [*made, *_SPECIALS]
