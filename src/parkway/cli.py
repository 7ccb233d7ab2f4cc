"""The command line: subcommands, and which settings each has. Flags and defaults are those of config.py."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from parkway import __version__
from parkway.config import EngineSettings, ModelSettings, RequestDefaults, ServerSettings
from parkway.errors import BadSetting, StartError
from parkway.flags import add_llama_flags, add_settings, heeded, parse, settings_of
from parkway.models.summary import model_facts
from parkway.weights import default_model, hub, open_checkpoint
from parkway.weights.shapes import SHAPES
from parkway.weights.summary import facts, type_totals

_MODEL_HELP = (
    "GGUF file, Hugging Face folder, or shape:NAME[:TYPE] for random weights, or OWNER/NAME[:FILE or QUANT] on the "
    "Hugging Face hub (default: SmolLM2-135M-Instruct, fetched once)"
)
_SHAPE_HELP = f"random weights in the shape of a model, made on this machine: {', '.join(SHAPES)}; TYPE: BF16, Q4_K, …"
_SERVED = (ModelSettings, EngineSettings, ServerSettings, RequestDefaults)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code: 2 with one sentence on stderr where it can't start."""
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
    except StartError as error:
        print(f"parkway: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        return []  # else -nonsense would be -n with the value onsense


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="parkway", description="An LLM server for many chats with exact answers.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"parkway {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    serve = _command(commands, "serve", _serve, "serve a model over HTTP", *_SERVED)
    serve.add_argument("--version", action="version", version=f"parkway {__version__}", help=argparse.SUPPRESS)
    serve.add_argument("--usage", action="help", help=argparse.SUPPRESS)
    add_llama_flags(serve, *_SERVED)
    chat = _command(commands, "chat", _chat, "chat in the terminal, with a server that runs or its own", EngineSettings)
    chat.add_argument(
        "target", nargs="?", metavar="URL or MODEL", help=f"http://HOST:PORT of a server, or {_MODEL_HELP}"
    )
    chat.add_argument("-s", "--system", metavar="TEXT", default="", help="the system prompt")
    bench = _command(commands, "bench", _bench, "measure prefill and decode", EngineSettings)
    verify = _command(commands, "verify", _verify, "prove on this machine that answers don't depend on the traffic")
    add_settings(verify, EngineSettings, "device")
    verify.add_argument(
        "--quick", action="store_const", const="quick", default="full", dest="mode", help="shorter chats, fewer of them"
    )
    verify.add_argument("--seed", default="0", metavar="N", help="of the sampled part of the product (default: 0)")
    source = bench.add_mutually_exclusive_group()
    source.add_argument("--shape", metavar="NAME[:TYPE]", help=_SHAPE_HELP)
    for command in (serve, source, verify):
        command.add_argument("path", nargs="?", metavar="MODEL", help=_MODEL_HELP)
    inspect = _command(commands, "inspect", _inspect, "tell what is in a model file")
    inspect.add_argument("path", metavar="FILE", help="GGUF file, Hugging Face folder, or OWNER/NAME[:FILE or QUANT]")
    return parser


def _command(commands: Any, name: str, run: Any, about: str, *settings: type) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
    parser.set_defaults(run=run)
    for owner in settings:
        add_settings(parser, owner)
    return parser


def _located(model: str | None, settings: ModelSettings = ModelSettings()) -> Path:  # noqa: B008 (frozen)
    """What `load_model` opens, fetched if need be. What is on the disk wins over the hub. Raises StartError."""
    if not model:
        return default_model.fetch()
    path = Path(model)
    if path.exists() or not hub.may_be_there(model):
        return path
    return hub.fetch(model, token=settings.hf_token or None, offline=settings.offline == "on")


def _served_model(arguments: argparse.Namespace) -> Path:
    settings = settings_of(ModelSettings, arguments, os.environ)
    if len([each for each in (arguments.path, arguments.model, arguments.hf_repo) if each]) > 1:
        raise BadSetting("MODEL", "the model is named more than once: by MODEL, --model or --hf-repo")
    if arguments.path:
        return _located(arguments.path, settings)
    if settings.model and not arguments.hf_repo:
        return Path(settings.model)
    if not settings.hf_repo:
        if settings.hf_file:
            raise BadSetting("--hf-file", "is of --hf-repo, which is missing")
        return default_model.fetch()
    name = f"{settings.hf_repo.partition(':')[0]}:{settings.hf_file}" if settings.hf_file else settings.hf_repo
    return hub.fetch(name, token=settings.hf_token or None, offline=settings.offline == "on")


def _serve(arguments: argparse.Namespace) -> int:
    idle = heeded(arguments, os.environ)
    defaults = settings_of(RequestDefaults, arguments, os.environ)
    engine = settings_of(EngineSettings, arguments, os.environ)
    server = settings_of(ServerSettings, arguments, os.environ, defaults=defaults)
    path = _served_model(arguments)
    server = replace(server, alias=server.alias or hub.name_of(path))
    if idle:
        print(f"parkway: no effect here: {', '.join(idle)} (docs/llama-server.md tells why)", file=sys.stderr)
    from parkway.api.server import serve

    return serve(path, engine, server)


def _chat(arguments: argparse.Namespace) -> int:
    from parkway import chat

    target = arguments.target or ""
    if target.startswith(("http://", "https://")):
        return chat.run(target, arguments.system)
    settings = settings_of(EngineSettings, arguments, os.environ)
    return chat.run_with_server(_located(target), settings, arguments.system)


def _verify(arguments: argparse.Namespace) -> int:
    seed = parse("--seed", arguments.seed, int)
    settings = settings_of(EngineSettings, arguments, os.environ)
    from parkway import verify

    return verify.run(_located(arguments.path), arguments.mode, seed, settings)


def _bench(arguments: argparse.Namespace) -> int:
    settings = settings_of(EngineSettings, arguments, os.environ)
    path = _located(arguments.path) if arguments.shape is None else _shape(arguments.shape)
    from parkway import bench

    return bench.run(path, settings)


def _shape(text: str) -> Path:
    """What `load_model` knows it by. Raises BadSetting."""
    name, _, _ = text.partition(":")
    if name not in SHAPES:
        raise BadSetting("--shape", f"must be one of {', '.join(SHAPES)}, not {name!r}")
    return Path(f"shape:{text}")


def _inspect(arguments: argparse.Namespace) -> int:
    path = _located(arguments.path)
    file = open_checkpoint(path)
    told = Table("", "", show_header=False, title=Text(path.absolute().name), title_justify="left")
    for label, value in {**facts(file), **model_facts(file)}.items():
        told.add_row(label, Text(value))
    by_type = Table("type", "tensors", "parameters", "bytes", "bits each")
    for column in by_type.columns[1:]:
        column.justify = "right"
    for total in type_totals(file.tensors.values()):
        bits = f"{8 * total.total_bytes / total.elements:.2f}"
        by_type.add_row(total.type, f"{total.tensors:,}", f"{total.elements:,}", f"{total.total_bytes:,}", bits)
    Console().print(Group(told, by_type))
    return 0


if __name__ == "__main__":
    sys.exit(main())
