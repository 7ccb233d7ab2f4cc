"""The dialects that are known, and which one a chat template speaks. A new family of models is an entry here."""

from functools import partial

from parkway.errors import BadSetting
from parkway.text.call_grammar import Around
from parkway.text.harmony import CHANNEL, HarmonyDialect
from parkway.text.json_calls import json_calls
from parkway.text.marked import MarkedDialect
from parkway.text.named_calls import DEEPSEEK, deepseek_calls, llama_call, mistral_call
from parkway.text.parts import Dialect
from parkway.text.reasoning import THINK
from parkway.text.tokenizer import Tokenizer
from parkway.text.xml_calls import tagged_call, xml_call
from parkway.text.xml_grammar import xml_arguments

_TOOL_CALL, _TOOL_CALL_END = "<tool_call>", "</tool_call>"
_ANY_JSON = partial(json_calls, known=True)
_FENCES = dict.fromkeys(("```json", "```tool_code", "```tool_call"), partial(json_calls, closing="```", known=True))
_IN_TAGS = {_TOOL_CALL: partial(json_calls, closing=_TOOL_CALL_END)}
_ARGUMENTS, _PARAMETERS = '{"name": "NAME", "arguments": ', '{"name": "NAME", "parameters": '

_HERMES = MarkedDialect(
    name="hermes",
    read=_IN_TAGS,
    inner=(_TOOL_CALL_END,),
    around=Around(f"{_TOOL_CALL}\n{_ARGUMENTS}", f"}}\n{_TOOL_CALL_END}"),
)
_SMOLLM = MarkedDialect(
    name="smollm",
    read=_IN_TAGS,
    inner=(_TOOL_CALL_END,),
    around=Around(_ARGUMENTS, "}", begin=f"{_TOOL_CALL}[", between=", ", end=f"]{_TOOL_CALL_END}"),
)
_QWEN3_CODER = MarkedDialect(
    name="qwen3-coder",
    read={_TOOL_CALL: tagged_call, "<function=": xml_call},
    inner=(_TOOL_CALL_END,),
    around=Around(f"{_TOOL_CALL}\n<function=NAME>\n", f"</function>\n{_TOOL_CALL_END}"),
    written=xml_arguments,
)
_LLAMA3 = MarkedDialect(
    name="llama3",
    read={"": _ANY_JSON, "<|python_tag|>": json_calls, "<function=": llama_call},
    around=Around(_PARAMETERS, "}", between="; "),
)
_MISTRAL_READ = {"[TOOL_CALLS]": mistral_call}
_MISTRAL = MarkedDialect(
    name="mistral",
    read=_MISTRAL_READ,
    thoughts=(("[THINK]", "[/THINK]"), THINK),
    inner=("[ARGS]", "[CALL_ID]"),
    around=Around(_ARGUMENTS, "}", begin="[TOOL_CALLS] [", between=", ", end="]"),
)
_MISTRAL_ARGS = MarkedDialect(
    name="mistral-args",
    read=_MISTRAL_READ,
    thoughts=(("[THINK]", "[/THINK]"), THINK),
    inner=("[ARGS]", "[CALL_ID]"),
    around=Around("[TOOL_CALLS]NAME[ARGS]", between=""),
)
_GEMMA = MarkedDialect(name="gemma", read={"": _ANY_JSON, **_FENCES}, around=Around(_PARAMETERS, "}"))
_DEEPSEEK_R1 = MarkedDialect(
    name="deepseek-r1",
    read={DEEPSEEK.calls: deepseek_calls},
    inner=DEEPSEEK[1:],
    around=Around(
        f"{DEEPSEEK.call}function{DEEPSEEK.separator}NAME\n```json\n",
        f"\n```{DEEPSEEK.call_end}",
        begin=DEEPSEEK.calls,
        end=DEEPSEEK.calls_end,
    ),
)
_DEEPSEEK_V3 = MarkedDialect(
    name="deepseek-v3.1",
    read={DEEPSEEK.calls: deepseek_calls},
    inner=DEEPSEEK[1:],
    around=Around(
        f"{DEEPSEEK.call}NAME{DEEPSEEK.separator}",
        DEEPSEEK.call_end,
        begin=DEEPSEEK.calls,
        between="",
        end=DEEPSEEK.calls_end,
    ),
)
_GENERIC = MarkedDialect(
    name="generic", read={"": _ANY_JSON, **_FENCES, **_IN_TAGS}, inner=(_TOOL_CALL_END,), around=Around(_ARGUMENTS, "}")
)

_KNOWN: tuple[Dialect, ...] = (
    *(_HERMES, _SMOLLM, _QWEN3_CODER, _LLAMA3, _MISTRAL, _MISTRAL_ARGS, _GEMMA, _DEEPSEEK_R1, _DEEPSEEK_V3),
    *(HarmonyDialect(), _GENERIC),
)
NAMES = tuple(dialect.name for dialect in _KNOWN)

# What a template's source must hold; the first that fits.
_SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((CHANNEL,), "gpt-oss"),
    ((DEEPSEEK.calls, "```json"), "deepseek-r1"),
    ((DEEPSEEK.calls,), "deepseek-v3.1"),
    (("<\uff5cAssistant\uff5c>",), "deepseek-r1"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral-args"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<function=", "<parameter="), "qwen3-coder"),
    ((_TOOL_CALL,), "hermes"),
    (("SmolLM",), "smollm"),
    (("<|python_tag|>",), "llama3"),
    (("<|start_header_id|>", '"parameters"'), "llama3"),
    (("<start_of_turn>",), "gemma"),
)


def dialect_of(template_source: str | None) -> Dialect:
    """The dialect that a chat template's source shows; generic where nothing does."""
    for signs, name in _SIGNS:
        if template_source and all(sign in template_source for sign in signs):
            return dialect_named(name)
    return _GENERIC


def special_tokens(dialect: Dialect, tokenizer: Tokenizer) -> dict[str, int]:
    """Which of the texts that the dialect's parser must see are special tokens, and their ids."""
    encoded = {text: tokenizer.encode(text) for text in dialect.shown}
    return {text: ids[0] for text, ids in encoded.items() if len(ids) == 1 and ids[0] in tokenizer.special_ids}


def dialect_named(name: str) -> Dialect:
    """Raises BadSetting."""
    for dialect in _KNOWN:
        if dialect.name == name:
            return dialect
    raise BadSetting("--tool-call-parser", f"there is no dialect {name!r}; there are {', '.join(NAMES)}")
