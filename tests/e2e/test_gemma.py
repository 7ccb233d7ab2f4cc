"""Gemma 3 270M behind a real server. The file is of the model before it learned to chat, and has no template."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import BadRequestError, OpenAI

from tests.e2e.test_serve import served

MODEL = "gemma-3-270m-q4_k_m"
TEMPLATE = """\
{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message.role }}
{{ message.content }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""


@pytest.fixture(scope="module")
def client(gemma3: Path) -> Iterator[OpenAI]:
    with served(gemma3, "--ctx-size", "1024") as (_, url):
        yield OpenAI(base_url=f"{url}/v1", api_key="none")


def test_it_goes_on_with_a_text(client: OpenAI) -> None:
    made = client.completions.create(
        model=MODEL, prompt="The first ten prime numbers are", max_tokens=24, temperature=0
    )
    assert made.choices[0].text.startswith(" 1, 2, 3, 5, 7, 11,")
    assert made.usage is not None
    assert made.usage.prompt_tokens == 7


def test_no_chat_without_a_template(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="has no chat template"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])


def test_turns_end_where_its_own_tokens_say(gemma3: Path) -> None:
    with served(gemma3, "--ctx-size", "1024", "--chat-template", TEMPLATE) as (_, url):
        client = OpenAI(base_url=f"{url}/v1", api_key="none")
        made = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Say yes."}],
            logit_bias={"106": 100},
            max_tokens=8,
            temperature=0,
        )
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("", "stop")
    assert made.usage is not None
    assert made.usage.prompt_tokens == 12
