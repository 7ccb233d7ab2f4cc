"""Random weights in the shape of a model, for measuring: made when they are read, the same for the same seed.

A tensor's rows are windows, at random places, of one pool of random values: making values is slow, copying them is not.
"""

from collections.abc import Callable, Mapping
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
from parkway.weights.checkpoint import RawTensor
from parkway.weights.shapes import SHAPES, Shape

Bytes = npt.NDArray[np.uint8]

_SCHEME = "shape:"
_POOL_BYTES = 1 << 25
_FLOATS = ("BF16", "F16", "F32")
_SCALES: Mapping[str, tuple[tuple[int, float], ...]] = {
    "Q4_0": ((0, 1.0),),
    "Q4_1": ((0, 1.0), (2, -7.5)),
    "Q8_0": ((0, 1.0),),
    "Q4_K": ((0, 1.0), (2, 7.5)),
    "Q6_K": ((208, 1.0),),
}
"""Where a block has fp16 numbers that all its values are proportional to, and their sizes beside each other: such
that the values' mean is near 0."""
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def is_shape(path: Path) -> bool:
    return str(path).startswith(_SCHEME)


class RandomTensor(RawTensor):
    """A tensor whose bytes are made each time they are read, and not kept."""

    def __init__(
        self, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType, make: Callable[[], Bytes]
    ) -> None:
        for field, value in (("name", name), ("shape", shape), ("type", kind), ("make", make)):
            object.__setattr__(self, field, value)

    @property
    def raw(self) -> Bytes:
        made: Bytes = self.__dict__["make"]()
        return made


class RandomCheckpoint:
    """A `Checkpoint` with matrices of one type, N(0, 1 / inputs), and a vocabulary of bytes and made-up words.

    Raises Unsupported for a type that is not made, or whose blocks don't fit the shape.
    """

    def __init__(self, shape: Shape, kind: str = "BF16", seed: int = 0, name: str = "random") -> None:
        if kind not in (*_FLOATS, *_SCALES):
            raise Unsupported(f"{name}: random weights of type {kind!r} are not made, only {', '.join(_made())}")
        self.path = Path(f"{_SCHEME}{name}:{kind}")
        self.name = f"{name}-{kind}"
        self.identity = f"{shape} {kind} {seed}"
        self._shape, self._seed, self._kind = shape, seed, GGMLQuantizationType[kind]
        self._pools: dict[int, Bytes] = {}
        drawn = [self._matrix(*matrix) for matrix in shape.matrices]
        drawn += [self._vector(*norm, mean=1.0) for norm in shape.norms]
        drawn += [self._vector(*bias, mean=0.0) for bias in shape.biases]
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

    def _matrix(self, name: str, rows: int, columns: int) -> RandomTensor:
        block, block_bytes = GGML_QUANT_SIZES[self._kind]
        if columns % block:
            raise Unsupported(f"{self.path}: {name} has rows of {columns} values, no multiple of {block}")
        row_bytes = columns // block * block_bytes

        def make() -> Bytes:
            pool = self._pool(columns)
            windows = (pool.size - row_bytes) // block_bytes + 1
            places = np.random.default_rng([self._seed, *name.encode()]).integers(0, windows, rows)
            return as_strided(pool, (windows, row_bytes), (block_bytes, 1), writeable=False)[places]

        return RandomTensor(name, (rows, columns), self._kind, make)

    def _vector(self, name: str, width: int, mean: float) -> RandomTensor:
        def make() -> Bytes:
            drawn = np.random.default_rng([self._seed, *name.encode()]).standard_normal((1, width), np.float32)
            return (np.float32(mean) + np.float32(0.1) * drawn).view(np.uint8)

        return RandomTensor(name, (width,), GGMLQuantizationType.F32, make)

    def _pool(self, columns: int) -> Bytes:
        """Random values for matrices of so many columns, as bytes; kept, since all such matrices share it."""
        if columns not in self._pools:
            random = np.random.default_rng([self._seed, columns])
            self._pools[columns] = _values(self._kind, random, 1 / np.sqrt(columns)).reshape(-1)
        return self._pools[columns]


def _made() -> tuple[str, ...]:
    return (*_FLOATS, *_SCALES)


def _values(kind: GGMLQuantizationType, random: np.random.Generator, deviation: float) -> Bytes:
    """_POOL_BYTES of values of a type with this standard deviation, uint8 [blocks, block bytes]."""
    block_bytes = GGML_QUANT_SIZES[kind][1]
    count = _POOL_BYTES // block_bytes
    if kind.name in _FLOATS:
        drawn = random.standard_normal((1, count), np.float32) * np.float32(deviation)
        return np.asarray(quantize(drawn, kind)).view(np.uint8)
    blocks, sizes = random.integers(0, 256, (count, block_bytes), np.uint8), random.uniform(0.5, 1.5, (count, 1))
    _scale(blocks, kind, sizes)
    sample = dequantize(blocks[:1024], kind)
    _scale(blocks, kind, sizes * (deviation / sample.std()))
    return blocks


def _scale(blocks: Bytes, kind: GGMLQuantizationType, sizes: npt.NDArray[np.float64]) -> None:
    for at, part in _SCALES[kind.name]:
        blocks[:, at : at + 2] = (sizes * part).astype(np.float16).view(np.uint8)


def _tokens(count: int) -> list[str]:
    """A token for every byte, words that no merge makes, and those that a chat needs."""
    words = ("Ġ" + "".join(letters) for letters in product(ascii_lowercase, repeat=4))
    made = sorted(ByteLevel.alphabet())
    made += [word for word, _ in zip(words, range(count - len(made) - len(_SPECIALS)), strict=False)]
    return [*made, *_SPECIALS]
