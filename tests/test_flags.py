"""Settings as flags and as variables, apart from any command."""

import argparse

import pytest

from parkway.config import EngineSettings, RequestDefaults, ServerSettings
from parkway.errors import BadSetting
from parkway.flags import add_settings, as_flags, settings_of, without_variables


def test_what_says_the_same_on_a_command_line() -> None:
    assert as_flags(RequestDefaults()) == [
        *("--cache-prompt", "--samplers", "", "--grammar", "", "--json-schema", "", "--chat-template-kwargs", ""),
        *("--reasoning", "auto", "--reasoning-effort", "", "--reasoning-format", "auto"),
    ]
    some = RequestDefaults(ignore_eos="on", cache_prompt="off", stop=("a", "b"), top_k=1)
    assert as_flags(some)[:8] == [
        *("--top-k", "1", "--ignore-eos", "--no-cache-prompt"),
        *("--reverse-prompt", "a", "--reverse-prompt", "b"),
    ]


def test_an_environment_without_settings() -> None:
    environment = {
        "PATH": "p",
        "PARKWAY_PREEMPT_EVERY": "64",
        "PARKWAY_HOST": "h",
        "PARKWAY_CTX_SIZE": "1",
        "LLAMA_ARG_LORA": "not known",
        "LLAMA_ARG_CTX_SIZE": "1",
        "LLAMA_API_KEY": "k",
    }
    left = without_variables(environment, ServerSettings)
    assert left.keys() == {"PATH", "PARKWAY_PREEMPT_EVERY", "PARKWAY_CTX_SIZE", "LLAMA_ARG_LORA"}


def test_a_command_has_the_flags_that_it_asks_for() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, EngineSettings, "parallel", "log")
    arguments = parser.parse_args(["--log", "parks", "--log", "warnings", "-np", "3"])
    found = settings_of(EngineSettings, arguments, {"PARKWAY_PARALLEL": "2", "PARKWAY_CTX_SIZE": "64"})
    assert found == EngineSettings(parallel=3, log="warnings")


def test_a_variable_is_named_as_it_is_spelt() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, EngineSettings)
    with pytest.raises(BadSetting, match=r"^PARKWAY_THREADS: must be a whole number, not 'x'$"):
        settings_of(EngineSettings, parser.parse_args([]), {"PARKWAY_THREADS": "x"})
