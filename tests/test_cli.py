"""The command line: which value wins, how refusals read, and what `inspect` tells."""

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from parkway import cli
from parkway.config import AUTOMATIC, EngineSettings, ModelSettings, RequestDefaults, ServerSettings
from parkway.errors import NoRoom
from parkway.flags import as_flags, flagged
from parkway.weights import default_model, hub
from parkway.weights.shapes import SHAPES

MODEL = Path("model.gguf")
pytestmark = pytest.mark.usefixtures("no_variables")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence with which these arguments are refused."""
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("parkway: ")
    assert err.count("\n") == 1
    return err.removeprefix("parkway: ").rstrip()


def test_serve_has_the_defaults_of_the_settings(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main(["serve", str(MODEL)]) == 0
    assert calls == [(MODEL, EngineSettings(), ServerSettings())]


DEFAULTS = RequestDefaults(
    max_tokens=9,
    temperature=0.5,
    top_k=3,
    top_p=0.25,
    min_p=0.125,
    seed=7,
    repeat_penalty=1.5,
    repeat_last_n=4,
    presence_penalty=-0.5,
    frequency_penalty=0.75,
    typical_p=0.5,
    top_n_sigma=1.5,
    xtc_probability=0.5,
    xtc_threshold=0.25,
    dynatemp_range=0.5,
    dynatemp_exponent=2.0,
    mirostat=2,
    mirostat_tau=4.0,
    mirostat_eta=0.5,
    dry_multiplier=0.5,
    dry_base=2.0,
    dry_allowed_length=3,
    dry_penalty_last_n=64,
    dry_sequence_breakers=("x", "none"),
    n_keep=7,
    samplers="edkt",
    ignore_eos="on",
    cache_prompt="off",
    logit_bias=("1+2", "3-4"),
    stop=("x", "y"),
    grammar="root ::= x",
    json_schema='{"type": "object"}',
    chat_template_kwargs='{"a": 1}',
    reasoning="off",
    reasoning_effort="low",
    reasoning_format="none",
)


def test_serve_has_a_flag_for_every_field(calls: list[tuple[Any, ...]]) -> None:
    engine = EngineSettings(
        ctx_size=128,
        parallel=2,
        device="cuda",
        batch_size=7,
        threads=3,
        activations="f32",
        isa="portable",
        numerics="fast",
        cuda_graphs="off",
        context_shift="on",
        log="parks",
        log_format="json",
        preempt="recompute",
        preempt_ram=-1,
        preempt_async="off",
        preempt_resume="pass",
        preempt_quantum=0.5,
    )
    server = ServerSettings(
        host="::1",
        port=81,
        alias="a",
        api_key=("k", "l"),
        cors_origins="*",
        max_body_bytes=5,
        max_queue=6,
        chat_template="{{ x }}",
        tool_call_parser="hermes",
        pooling="mean",
        drain_seconds=1.5,
        notices="chunks",
        sse_ping_interval=15.0,
        slots="off",
        sleep_idle_seconds=9.0,
        trace="t",
        defaults=DEFAULTS,
    )
    owners = (engine, server, DEFAULTS)
    assert all(getattr(owner, field.name) != field.default for owner in owners for field in fields(owner))
    assert cli.main(["serve", *(text for owner in owners for text in as_flags(owner)), str(MODEL)]) == 0
    assert calls == [(MODEL, engine, server)]


def test_llama_server_spellings(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main(["serve", "-c", "128", "-np", "2", "-b", "64", "-t", "1", "--host", "h", "--port", "1"]) == 0
    (_, engine, server) = calls[0]
    assert (engine.ctx_size, engine.parallel, engine.batch_size, engine.threads) == (128, 2, 64, 1)
    assert (server.host, server.port) == ("h", 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--preempt-ram", "-2"], EngineSettings(preempt_ram=AUTOMATIC)),
        (["--preempt-ram", "-1"], EngineSettings(preempt_ram=-1)),
        (["--preempt-ram=0"], EngineSettings(preempt_ram=0)),
        (["--no-preempt-async"], EngineSettings(preempt_async="off")),
        (["--preempt-async", "off", "--no-preempt-async"], EngineSettings(preempt_async="off")),
        (["--no-preempt-async", "--preempt-async", "on"], EngineSettings(preempt_async="on")),
    ],
    ids=str,
)
def test_parks_as_llama_server_spells_them(
    calls: list[tuple[Any, ...]], arguments: list[str], expected: EngineSettings
) -> None:
    assert cli.main(["serve", *arguments, str(MODEL)]) == 0
    assert calls == [(MODEL, expected, ServerSettings())]


def test_a_flag_without_a_value_wins_over_its_variable(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARKWAY_PREEMPT_ASYNC", "on")
    assert cli.main(["bench", "--no-preempt-async", str(MODEL)]) == 0
    assert calls == [(MODEL, EngineSettings(preempt_async="off"))]


@pytest.mark.parametrize("interval", ["-1", "-1.0", "0", "2.5"])
def test_ping_intervals(calls: list[tuple[Any, ...]], interval: str) -> None:
    assert cli.main(["serve", "--sse-ping-interval", interval, str(MODEL)]) == 0
    assert calls == [(MODEL, EngineSettings(), ServerSettings(sse_ping_interval=float(interval)))]


def test_a_variable_replaces_the_default_and_a_flag_the_variable(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARKWAY_CTX_SIZE", "256")
    monkeypatch.setenv("PARKWAY_PARALLEL", "3")
    assert cli.main(["bench", str(MODEL), "--ctx-size", "512"]) == 0
    assert calls == [(MODEL, EngineSettings(ctx_size=512, parallel=3))]


def test_without_a_model_the_default_one_is_fetched(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_model, "fetch", lambda: Path("fetched.gguf"))
    assert cli.main(["verify"]) == 0
    assert cli.main(["bench"]) == 0
    assert calls == [
        (Path("fetched.gguf"), "full", 0, EngineSettings()),
        (Path("fetched.gguf"), EngineSettings()),
    ]


def test_verify_takes_a_device_and_no_other_setting(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARKWAY_PARALLEL", "7")
    assert cli.main(["verify", "--quick", "--seed", "5", "--device", "cpu", str(MODEL)]) == 0
    monkeypatch.setenv("PARKWAY_DEVICE", "cuda")
    assert cli.main(["verify", str(MODEL)]) == 0
    assert calls == [
        (MODEL, "quick", 5, EngineSettings(device="cpu")),
        (MODEL, "full", 0, EngineSettings(device="cuda")),
    ]
    assert refusal(capsys, "verify", "--parallel=2").startswith("unrecognized arguments: --parallel=2 ")


def test_a_name_that_is_no_path_is_looked_for_on_the_hub(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "fetch", lambda name, **how: Path(f"fetched {name}"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "too").touch()
    for name in ("owner/name", "owner/name:Q8_0", "here/too", "models/none.gguf"):
        assert cli.main(["bench", name]) == 0
    assert [path for path, _ in calls] == [
        Path("fetched owner/name"),
        Path("fetched owner/name:Q8_0"),
        Path("here/too"),
        Path("models/none.gguf"),
    ]


def test_chat_goes_to_a_server_or_starts_one(calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "fetch", lambda: Path("fetched.gguf"))
    assert cli.main(["chat", "http://host:1/v1", "--system", "Be brief."]) == 0
    assert cli.main(["chat"]) == 0
    assert cli.main(["chat", str(MODEL), "--parallel", "2"]) == 0
    assert calls == [
        ("http://host:1/v1", "Be brief."),
        (Path("fetched.gguf"), EngineSettings(), ""),
        (MODEL, EngineSettings(parallel=2), ""),
    ]


def test_a_shape_is_a_model_of_random_weights(calls: list[tuple[Any, ...]]) -> None:
    assert cli.main(["bench", "--shape", "qwen3-8b"]) == 0
    assert cli.main(["bench", "--shape", "tiny-llama:Q4_K", "--device", "cpu"]) == 0
    assert cli.main(["serve", "shape:tiny-llama:Q8_0"]) == 0
    assert cli.main(["verify", "shape:tiny-qwen3"]) == 0
    assert calls == [
        (Path("shape:qwen3-8b"), EngineSettings()),
        (Path("shape:tiny-llama:Q4_K"), EngineSettings(device="cpu")),
        (Path("shape:tiny-llama:Q8_0"), EngineSettings(), ServerSettings()),
        (Path("shape:tiny-qwen3"), "full", 0, EngineSettings()),
    ]


def test_a_shape_that_is_not_known_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    known = ", ".join(SHAPES)
    assert refusal(capsys, "bench", "--shape", "gpt-5:Q4_0") == f"--shape: must be one of {known}, not 'gpt-5'"


@pytest.mark.parametrize("arguments", [["m.gguf", "--shape", "qwen3-8b"], ["--shape", "qwen3-8b", "m.gguf"]])
def test_a_shape_or_a_model_but_not_both(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "not allowed with argument" in refusal(capsys, "bench", *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--ctx-size", "many"], "--ctx-size: must be a whole number, not 'many'"),
        (["serve", "-c", "1.5"], "--ctx-size: must be a whole number, not '1.5'"),
        (["serve", "--ctx-size", "5"], "--ctx-size: must be at least 64, not 5"),
        (["serve", "--port", "65536"], "--port: must be between 0 and 65535, not 65536"),
        (["serve", "--drain-seconds", "nan"], "--drain-seconds: must be a number, not 'nan'"),
        (["bench", "--isa", "sse"], "--isa: must be one of auto, amx, avx512, avx2, portable, not 'sse'"),
        (["verify", "--device", "tpu"], "--device: must be one of auto, cpu, cuda, not 'tpu'"),
        (["verify", "--seed", "x"], "--seed: must be a whole number, not 'x'"),
        (["serve", "-c", str(10**20)], f"--ctx-size: must be at most 2147483647, not {10**20}"),
        (["serve", "--preempt-ram", "-3"], "--preempt-ram: must be at least -2, not -3"),
        (["serve", "--preempt", "on"], "--preempt: must be one of copy, recompute, off, not 'on'"),
        (["serve", "--preempt-quantum", "-1"], "--preempt-quantum: must not be negative, not -1.0"),
        (["serve", "--notices", "all"], "--notices: must be one of off, comments, chunks, not 'all'"),
        (["serve", "--sse-ping-interval", "-2"], "--sse-ping-interval: must be at least -1, not -2.0"),
        (["serve", "--port"], "--port: expected one argument (see parkway serve --help)"),
        (["serve", "--nonsense"], "unrecognized arguments: --nonsense (see parkway --help)"),
        (["serve", "-nonsense"], "unrecognized arguments: -nonsense (see parkway --help)"),
        (["serve", "--top-k", "1.5"], "--top-k: must be a whole number, not '1.5'"),
        (["serve", "--chat-template-kwargs", "[]"], "--chat-template-kwargs: must be a JSON object"),
        (
            ["serve", "a.gguf", "-m", "b.gguf"],
            "MODEL: the model is named more than once: by MODEL, --model or --hf-repo",
        ),
        (["serve", "-hff", "a.gguf"], "--hf-file: is of --hf-repo, which is missing"),
        ([], "the following arguments are required: COMMAND (see parkway --help)"),
    ],
)
def test_a_bad_flag_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert refusal(capsys, *arguments) == sentence


def test_a_bad_variable_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARKWAY_THREADS", "two")
    assert refusal(capsys, "serve") == "PARKWAY_THREADS: must be a whole number, not 'two'"


def test_what_goes_wrong_at_the_start_is_one_sentence(
    capsys: pytest.CaptureFixture[str], calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise NoRoom("the KV pool needs 9 GiB, and there are 4")

    monkeypatch.setattr(sys.modules["parkway.api.server"], "serve", no_room)
    assert refusal(capsys, "serve", str(MODEL)) == "the KV pool needs 9 GiB, and there are 4"


def test_help_shows_flags_with_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["serve", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for owner in (EngineSettings, ModelSettings, RequestDefaults, ServerSettings):
        for field in flagged(owner):
            assert field.metadata["flags"][-1] in told
            assert field.default in ("", None, ()) or f"(default: {field.default})" in told
    assert "--mlock" not in told


@pytest.mark.parametrize("command", ["serve", "bench", "verify", "chat"])
def test_help_tells_what_a_model_may_be(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "GGUF file, Hugging Face folder, or shape:NAME[:TYPE] for random weights" in told
    assert "OWNER/NAME[:FILE or QUANT] on the Hugging Face hub" in told


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("parkway ")


def test_inspect_tells_what_is_in_the_file(
    capsys: pytest.CaptureFixture[str], smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["inspect", str(smollm2)]) == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert smollm2.name in lines
    assert "architecture llama" in lines
    assert "layers 30" in lines
    assert "vocabulary 49152" in lines
    assert "tokenizer gpt2, pre-tokenizer smollm" in lines
    assert "chat template yes, chatml" in lines
    assert "Q4_1 210 106,168,320 66,355,200 5.00" in lines
    assert "Q8_0 1 28,311,552 30,081,024 8.50" in lines
    assert "F32 61 35,136 140,544 32.00" in lines


def test_inspect_tells_the_bytes_of_random_weights_without_making_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", "shape:qwen3-8b:Q4_K"]) == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert "architecture qwen3" in lines
    assert "vocabulary 151936" in lines
    assert "Q4_K 254 8,190,427,136 4,607,115,264 4.50" in lines


def test_inspect_refuses_what_is_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    assert refusal(capsys, "inspect", str(missing)).startswith(f"{missing}: ")
    (tmp_path / "text.gguf").write_text("This is no model file.")
    assert "not a GGUF file" in refusal(capsys, "inspect", str(tmp_path / "text.gguf"))
