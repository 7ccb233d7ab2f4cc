"""Templates render as Hugging Face renders them, and what they refuse is the client's fault."""

from datetime import datetime
from typing import Any

import pytest

from parkway.errors import BadFile, BadRequest, Unsupported
from parkway.text import ChatTemplate, ModelText

HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, **variables: Any) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(HELLO, **variables)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  {% set x = 1 %}\nx{{ x }}\n{% endif %}\n", "x1\n"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'b': '<é&\"', 'a': 1} | tojson }}", '{"b": "<é&\\"", "a": 1}'),
        ("{{ {'b': 2, 'a': [1]} | tojson(indent=1, sort_keys=true) }}", '{\n "a": [\n  1\n ],\n "b": 2\n}'),
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hello</s>"),
        ("{% generation %}{{ messages[0]['content'] }}!{% endgeneration %}", "Hello!"),
        ("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}", "True True True"),
        ("{{ never_given is defined }}", "False"),
        ("{{ messages[0].content }}<b>&", "Hello<b>&"),
    ],
)
def test_renders(source: str, text: str) -> None:
    assert render(source) == text


def test_variables_reach_the_template() -> None:
    source = "{{ tools[0].name }} {{ add_generation_prompt }} {{ enable_thinking }}"
    assert render(source, tools=[{"name": "f"}], add_generation_prompt=False, enable_thinking=True) == "f False True"


def test_variables_can_not_replace_what_is_ours() -> None:
    assert render("{{ messages[0].content }}{{ bos_token }}", messages=[], bos_token="x", self=1) == "Hello<s>"


def test_the_clock() -> None:
    assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 'x' + messages[0].missing }}", "missing"),
        ("{{ 'x' + messages }}", "str"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 // 0 }}", "zero"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "[Rr]ange"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "take more than 5000000 turns",
        ),
        ("{% macro f(n) %}{% for i in range(9999) %}{{ f(n) }}{% endfor %}{% endmacro %}{{ f(1) }}", "recursion"),
        ("{{ 'a' * 3000000000 }}", "too large"),
        ("{{ 3000000000 * [1] }}", "too large"),
        ("{{ 9 ** 99999999 }}", "too large"),
        ("{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}", "too large"),
        ("{{ 'a' | center(3000000000) }}", "too large"),
        ("{{ 'a\\nb' | indent(3000000000) }}", "too large"),
        ("{{ '%3000000000d' % 1 }}", "too large"),
        ("{{ '%*d' % (3000000000, 1) }}", "too large"),
        ("{{ '{:3000000000}'.format(1) }}", "too large"),
        ("{{ '%3000000000d' | format(1) }}", "too large"),
        ("{{ 'a'.ljust(3000000000) }}", "too large"),
        ("{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "too large"),
        ("{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}", "too large"),
        (
            "{% macro two(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(x='ab') %}"
            "{% for i in range(60) %}{% set n.x = two(n.x) %}{% endfor %}",
            "too large",
        ),
        ("{% set x %}{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}{% endset %}{{ x }}", "too large"),
        ("{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}", "too large"),
    ],
)
def test_what_a_template_refuses_is_the_clients_fault(source: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as caught:
        render(source)
    assert caught.value.param == "messages"


def test_what_bounds_leave_as_it_was() -> None:
    """Loops know their length, their last turn and their neighbours; nothing is said of what is small."""
    source = (
        "{% for i in range(3) %}{{ loop.index }}/{{ loop.length }}{{ ' last' if loop.last }}{{ loop.previtem }};"
        "{% endfor %}"
        "{% for k, v in {'a': 1}.items() if v %}{{ k }}{{ v }}{% else %}none{% endfor %}"
        "{% for x in [] %}{% else %}empty{% endfor %}{% for x in missing %}{% endfor %}"
        "{% set x = missing %}{{ x is defined }}{% set y | upper %}b{% endset %}{{ y }}"
        "{{ '-' * 3 }}{{ 2 ** 3 }}{{ '%03d' % 7 }}{{ 'a'.ljust(3) }}|{{ 'a' | center(3) }}|{{ 'a\nb' | indent(2) }}"
    )
    assert render(source) == "1/3;2/30;3/3 last1;a1emptyFalseB---8007a  | a |a\n  b"


def test_a_template_that_is_not_jinja_is_the_files_fault() -> None:
    with pytest.raises(Unsupported, match="line 2"):
        render("\n{% if %}")


def test_the_default_models_prompt(metadata: dict[str, Any]) -> None:
    text = ModelText.from_metadata(metadata, "smollm2")
    prompt = text.chat_prompt([*HELLO, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "汉"}])
    assert prompt[:2] == [1, 9690]
    assert text.tokenizer.decode(prompt) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>user\n汉<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("rendered_bos", ["", "{{ bos_token }}"])
def test_a_chat_has_one_bos(toy: dict[str, Any], rendered_bos: str) -> None:
    toy["tokenizer.ggml.add_bos_token"] = True
    toy["tokenizer.chat_template"] = rendered_bos + "{{ messages[0].content }}"
    assert ModelText.from_metadata(toy, "toy").chat_prompt(HELLO) == [260, *b"He", 257, ord("o")]


def test_without_a_template_there_is_no_chat(toy: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="toy has no chat template") as caught:
        ModelText.from_metadata(toy, "toy").chat_prompt(HELLO)
    assert caught.value.param == "messages"


def test_a_template_that_is_not_text_is_named(toy: dict[str, Any]) -> None:
    with pytest.raises(BadFile, match=r"^a.gguf: tokenizer.chat_template"):
        ModelText.from_metadata(toy | {"tokenizer.chat_template": 3}, "toy", "a.gguf")
