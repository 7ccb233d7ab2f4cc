"""llama-server's command line and variables: each flag is in one list, and does what its list says."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parkway import cli
from parkway.config import EngineSettings, ModelSettings, RequestDefaults, ServerSettings
from parkway.flags import flagged
from parkway.llama_flags import BY_NAME, LLAMA_FLAGS, Fate, LlamaFlag
from parkway.weights import hub
from tests.llama_document import DOCUMENT, OWNERS, document

MODEL = Path("model.gguf")
Calls = list[tuple[Any, ...]]
TEXTS = {
    "offline": "on",
    "device": "cpu",
    "log": "parks",
    "log_format": "on",
    "preempt_async": "off",
    "context_shift": "on",
    "slots": "off",
    "pooling": "mean",
    "reasoning": "on",
    "reasoning_format": "none",
    "ignore_eos": "on",
    "cache_prompt": "off",
    "chat_template": "{{ x }}",
    "chat_template_kwargs": "{}",
    "json_schema": "{}",
    "logit_bias": "7+1",
    "-mu": "https://huggingface.co/a/b/resolve/main/c.gguf",
    "--reasoning-budget": "0",
    "-ngl": "0",
    "-lv": "5",
}
"""Of fields and flags, where 64 or a file would not do."""


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What would have been fetched from the hub, and how."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def fetch(name: str, **how: Any) -> Path:
        asked.append((name, how))
        return Path(name)

    monkeypatch.setattr(hub, "fetch", fetch)
    return asked


def those(fate: Fate) -> list[LlamaFlag]:
    return [flag for flag in LLAMA_FLAGS if flag.fate == fate]


def spelled(flag: LlamaFlag) -> str:
    return flag.names[0]


def served(calls: Calls) -> tuple[EngineSettings, ServerSettings]:
    (_, engine, server) = calls.pop()
    return engine, server


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["serve", str(MODEL), *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err.removeprefix("parkway: ").rstrip()


def test_nothing_is_in_two_lists() -> None:
    names = Counter(name for flag in LLAMA_FLAGS for name in (*flag.names, *flag.off_names))
    variables = Counter(name for flag in LLAMA_FLAGS for name in flag.variables)
    assert not [name for told in (names, variables) for name, count in told.items() if count > 1]
    assert len(names) > 400
    assert all(re.fullmatch(r"--?[a-z0-9][a-z0-9.-]*|-[A-Z][a-z]*", name) for name in names)


def test_every_flag_has_a_name_and_what_is_not_honoured_a_reason() -> None:
    for flag in LLAMA_FLAGS:
        assert flag.names
        assert bool(flag.why) == (flag.fate != "honoured")
        assert not flag.neutral or flag.fate == "refused"


def test_the_document_is_made_of_the_table() -> None:
    assert DOCUMENT.read_text() == document(), "run `python -m tests.llama_document`"


def test_fields_of_honoured_flags_exist() -> None:
    fields = {field.name for owner in OWNERS for field in flagged(owner)}
    assert {flag.field for flag in those("honoured")} - {""} <= fields


def test_a_flag_that_a_setting_has_as_well_means_that_setting() -> None:
    own = {name: field.name for owner in OWNERS for field in flagged(owner) for name in field.metadata["flags"]}
    assert not [name for name in own if name in BY_NAME and BY_NAME[name].field != own[name]]


@pytest.mark.parametrize("flag", those("no effect"), ids=spelled)
def test_a_flag_without_effect_is_said_once(
    flag: LlamaFlag, calls: Calls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = ["1"] * len(flag.value.split())
    for name in flag.variables:
        monkeypatch.setenv(name, "1")
    line = [text for name in flag.names for text in (name, *value, name, *value)]
    assert cli.main(["serve", str(MODEL), *line, *flag.off_names]) == 0
    told = ", ".join((*flag.names, *flag.off_names, *flag.variables))
    assert capsys.readouterr().err == f"parkway: no effect here: {told} (docs/llama-server.md tells why)\n"
    assert calls == [(MODEL, EngineSettings(), ServerSettings())]


@pytest.mark.parametrize("flag", those("refused"), ids=spelled)
def test_a_flag_that_would_change_answers_is_refused_by_name(
    flag: LlamaFlag, calls: Calls, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = ["17"] * len(flag.value.split())
    names = flag.names if "on" not in flag.neutral else flag.off_names
    for name in names:
        assert refusal(capsys, name, *value) == f"{name}: {flag.why}"
    for name in flag.variables:
        with monkeypatch.context() as patch:
            patch.setenv(name, "17" if flag.value else "on" if "on" not in flag.neutral else "off")
            assert refusal(capsys) == f"{name}: {flag.why}"
    assert not calls
    for text in flag.neutral:
        name = (*flag.off_names, *flag.names)[0] if text == "off" else flag.names[0]
        if flag.value or text == "on" or flag.off_names:
            assert cli.main(["serve", str(MODEL), name, *([text] if flag.value else [])]) == 0
            assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flag", [flag for flag in those("honoured") if flag.field], ids=spelled)
def test_an_honoured_flag_is_the_setting(
    flag: LlamaFlag, calls: Calls, fetched: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("{}")
    text = TEXTS.get(flag.names[0]) or (str(file) if flag.value == "FILE" else TEXTS.get(flag.field, "64"))
    owner = next(owner for owner in OWNERS if flag.field in {field.name for field in flagged(owner)})
    line = ["serve"] if owner is ModelSettings else ["serve", str(MODEL)]
    if flag.field in ("hf_file", "hf_token", "offline"):
        line += ["-hf", "owner/name"]
    off = flag.off_names if flag.field not in ("log_format", "context_shift") else ()
    for name in off or flag.names:
        assert cli.main([*line, name, *([text] if flag.value else [])]) == 0
    for name in flag.variables:
        with monkeypatch.context() as patch:
            patch.setenv(name, text)
            assert cli.main(line) == 0
    assert calls == [calls[0]] * (len(off or flag.names) + len(flag.variables))
    if owner is ModelSettings:
        assert fetched == fetched[:1] * len(calls)
        assert fetched or calls[0][0] == file
    else:
        found = {EngineSettings: calls[0][1], ServerSettings: calls[0][2], RequestDefaults: calls[0][2].defaults}[owner]
        assert getattr(found, flag.field) != getattr(owner(), flag.field)


def test_a_flag_wins_over_our_variable_that_over_theirs_that_over_the_default(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> tuple[int, float | None]:
        assert cli.main(["serve", str(MODEL), *flags]) == 0
        engine, server = served(calls)
        return engine.ctx_size, server.defaults.temperature

    flags: list[str] = []
    assert found() == (EngineSettings().ctx_size, None)
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "100")
    monkeypatch.setenv("LLAMA_ARG_TEMPERATURE", "0.1")
    assert found() == (100, 0.1)
    monkeypatch.setenv("PARKWAY_CTX_SIZE", "200")
    monkeypatch.setenv("PARKWAY_TEMPERATURE", "0.2")
    assert found() == (200, 0.2)
    flags += ["--ctx-size", "300", "--temperature", "0.3"]
    assert found() == (300, 0.3)


def test_their_variables_are_for_serving_only(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "100")
    monkeypatch.setenv("LLAMA_ARG_RPC", "host:1")
    assert cli.main(["bench", str(MODEL)]) == 0
    assert calls == [(MODEL, EngineSettings())]


def test_the_last_of_a_setting_counts_whatever_its_name(calls: Calls) -> None:
    assert cli.main(["serve", str(MODEL), "-ngl", "0", "--device", "auto", "-ngl", "all"]) == 0
    assert served(calls)[0].device == "auto"
    assert cli.main(["serve", str(MODEL), "--device", "CUDA0", "-ngl", "0"]) == 0
    assert served(calls)[0].device == "cpu"
    assert cli.main(["serve", str(MODEL), "--no-cache-prompt", "--cache-prompt"]) == 0
    assert served(calls)[1].defaults.cache_prompt == "on"


@pytest.mark.parametrize("flag", ["-np", "-t", "-n", "-s", "--reasoning-budget"])
def test_minus_one_is_as_if_it_were_left_out(calls: Calls, flag: str) -> None:
    assert cli.main(["serve", str(MODEL), flag, "-1"]) == 0
    assert calls == [(MODEL, EngineSettings(), ServerSettings())]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("LLAMA_ARG_CACHE_PROMPT", "0", "off"),
        ("LLAMA_ARG_CACHE_PROMPT", "enabled", "on"),
        ("LLAMA_ARG_NO_CACHE_PROMPT", "whatever", "off"),
    ],
)
def test_switches_in_variables(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, name: str, text: str, expected: str
) -> None:
    monkeypatch.setenv(name, text)
    assert cli.main(["serve", str(MODEL)]) == 0
    assert served(calls)[1].defaults.cache_prompt == expected


def test_what_may_be_repeated_adds_up(calls: Calls, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# ours\nthree\n\nfour\n")
    keys = ["--api-key", "one,two", "--api-key-file", str(tmp_path / "keys")]
    assert cli.main(["serve", str(MODEL), *keys, "-r", "a\\n", "-r", "b", "-l", "1+2", "-l", "3-inf"]) == 0
    _, server = served(calls)
    assert server.api_keys == ("one", "two", "three", "four")
    assert server.defaults.stop == ("a\n", "b")
    assert server.defaults.logit_bias == ("1+2", "3-inf")


def test_which_model(calls: Calls, fetched: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for line in ("-m a/b", "-hf a/b:q8_0", "-hf a/b:q8_0 -hff c.gguf", "a/b --offline"):
        assert cli.main(["serve", *line.split(), "-hft", "secret"]) == 0
    assert [path for path, _, _ in calls] == [Path(text) for text in ("a/b", "a/b:q8_0", "a/b:c.gguf", "a/b")]
    asked = {"token": "secret", "offline": False}
    assert fetched == [("a/b:q8_0", asked), ("a/b:c.gguf", asked), ("a/b", asked | {"offline": True})]


def test_a_model_on_the_command_line_wins_over_variables(
    calls: Calls, fetched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", "theirs.gguf")
    for flags in ([], ["-hf", "a/b"], ["own.gguf"], ["-m", "own.gguf"]):
        assert cli.main(["serve", *flags]) == 0
    assert [path for path, _, _ in calls] == [Path(text) for text in ("theirs.gguf", "a/b", "own.gguf", "own.gguf")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-ngl", "20"], "-ngl: must be all, auto, 99 or more, or 0 for the CPU, not '20'"),
        (["--reasoning-budget", "100"], "--reasoning-budget: must be 0 or -1, not '100'"),
        (["--chat-template", "chatml"], "--chat-template: must be a Jinja template: there are none with names such as"),
        (["--chat-template-file", "/none"], "--chat-template-file: /none: can't be read: No such file"),
        (["-mu", "https://host/file.gguf"], "-mu: only files of the hub are fetched by URL"),
        (["--reasoning-format", "deepseek-legacy"], "--reasoning-format: must be one of auto, none, deepseek"),
        (["--n-predict", "x"], "--n-predict: must be a whole number, not 'x'"),
    ],
)
def test_a_text_that_can_not_be_honoured_is_named(
    capsys: pytest.CaptureFixture[str], calls: Calls, arguments: list[str], sentence: str
) -> None:
    assert refusal(capsys, *arguments).startswith(sentence)


def test_the_command_line_of_a_known_client_starts(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--parallel 4 --flash-attn on --no-context-shift -c 8192 --metrics -ngl -1 --fit off --kv-unified --jinja"
    assert cli.main(["serve", "-m", str(MODEL), *line.split()]) == 0
    assert calls == [(MODEL, EngineSettings(), ServerSettings())]
    assert "--flash-attn, --metrics, --fit (" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["--context-shift", "LLAMA_ARG_CONTEXT_SHIFT", "PARKWAY_CONTEXT_SHIFT"])
def test_contexts_are_shifted_where_that_is_asked_for(
    given: str, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not given.startswith("--"):
        monkeypatch.setenv(given, "on")
    assert cli.main(["serve", str(MODEL), *([given] if given.startswith("--") else []), "--keep", "-1"]) == 0
    ((_, engine, server),) = calls
    assert (engine.context_shift, server.defaults.n_keep) == ("on", -1)


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, told in (("--version", "parkway "), ("--usage", "usage: parkway serve")):
        with pytest.raises(SystemExit, match="0"):
            cli.main(["serve", flag])
        assert capsys.readouterr().out.startswith(told)
