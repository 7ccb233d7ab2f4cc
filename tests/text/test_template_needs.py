"""What templates need of messages with calls: small ones that ask for it as those of real models do."""

from typing import Any

import pytest

from parkway.text.chat_template import ChatTemplate
from parkway.text.template_needs import Needs

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "assistant", "content": "Rain."},
]

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content + '' }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ v }}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
TEXT_AND_NULL = (
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
    "{% for c in m.tool_calls %}{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}"
    "{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
SHORT = (
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('nine, please') }}{% endif %}{{ c.function | tojson }} {{ c.id }}"
    "{% endfor %}{% else %}<{{ m.role }}{{ m.tool_call_id or '' }}>{{ m.content }}{% endif %}{% endfor %}"
)
DEAF = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, "", "")


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        (PLAIN, Needs()),
        (TEXT_AND_NULL, Needs(text_arguments=True, null_content=True)),
        (SHORT, Needs(short_ids=True)),
        (DEAF, Needs()),
    ],
)
def test_needs(source: str, needs: Needs) -> None:
    assert Needs.of(template(source)) == needs


def test_text_and_null() -> None:
    made = template(TEXT_AND_NULL)
    text = made.render(Needs.of(made).met(MESSAGES))
    assert text == '<user>Hiweather {"city": "Zürich"}<tool>rain<assistant>Rain.'


def test_short_ids_are_the_same_for_call_and_result() -> None:
    made = template(SHORT)
    _, calling, result, _ = Needs.of(made).met(MESSAGES)
    assert calling["tool_calls"][0]["id"] == result["tool_call_id"]
    assert len(result["tool_call_id"]) == 9
    assert "Zürich" in made.render(Needs.of(made).met(MESSAGES))
    kept = [{"role": "tool", "tool_call_id": "abcDEF123", "content": "x"}]
    assert Needs(short_ids=True).met(kept) == kept


def test_what_is_no_call_stays() -> None:
    odd = [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{cut"}}]}]
    [message] = Needs(True, True, True).met(odd)
    assert message["tool_calls"] == odd[0]["tool_calls"]
    assert message["content"] is None
