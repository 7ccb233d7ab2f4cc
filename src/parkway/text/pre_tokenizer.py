"""How a text is cut into words before the merges of BPE: the splits behind each name that a GGUF file may give.

Knows no vocabulary. A file tokenizes here as in llama.cpp, except where llama.cpp departs from the models' own
tokenizer.json, which is kept to: the tekken and gpt-4o families for combining marks and for capitals beyond ASCII,
DeepSeek's for white space beyond ASCII.
"""

from dataclasses import dataclass, replace

from tokenizers import Regex, pre_tokenizers

from parkway.errors import Unsupported

_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_OTHERS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_OTHERS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_BAILING = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_OTHERS}|\s*[\r\n]|\s+(?!\S)|\s+"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_GPT4O = (
    rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_SEED_CODER = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`splits` are applied one after the other, each to the pieces that the one before left.

    `whole_words`: a word that is itself a token is taken as it is, whatever the merges make of it.
    `adds_bos`: what holds where the file doesn't say.
    """

    splits: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.splits
        ]
        return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_gpt2 = PreTokenizer((_GPT2,))
_digits = PreTokenizer((r"\p{N}", _GPT2))
_llama3 = PreTokenizer((_LLAMA3,))
_qwen2 = PreTokenizer((_QWEN2,))
_default = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_deepseek_v3 = PreTokenizer((r"\p{N}{1,3}", "[一-龥\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK_V3))
_deepseek_llm = PreTokenizer(
    (
        *(r"[\r\n]", r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^\u10d0-\u10ff]]+"),
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        *(r"\s+$", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}+"),
    )
)
_deepseek_coder = PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}"))

_BY_NAME = {
    "": _default,
    "default": _default,
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4", "gigachat", "a.x-4.0"), _gpt2),
    **dict.fromkeys(("mellum", "granite-docling"), _gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _digits),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        replace(_llama3, whole_words=True, adds_bos=True),
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), _llama3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan", "stablelm2", "grok-2", "solar-open"), _qwen2),
    **dict.fromkeys(("kormo", "f2llmv2"), _qwen2),
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), PreTokenizer((_GPT4O,))),
    "qwen35": PreTokenizer((_QWEN35,)),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), PreTokenizer((_BAILING,))),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "seed-coder": PreTokenizer((_SEED_CODER,)),
    "deepseek-llm": _deepseek_llm,
    "deepseek-coder": _deepseek_coder,
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), _deepseek_v3),
}


def pre_tokenizer(name: str, path: object) -> PreTokenizer:
    """The one that `tokenizer.ggml.pre` of the file at `path` names; raises Unsupported."""
    if name not in _BY_NAME:
        raise Unsupported(f"{path}: the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported")
    return _BY_NAME[name]
