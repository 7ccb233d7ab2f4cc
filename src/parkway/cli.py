"""The command line: subcommands, flags and PARKWAY_* variables. Defaults and checks are those of config.py."""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from parkway import __version__
from parkway.config import EngineSettings, ServerSettings
from parkway.errors import BadSetting, StartError
from parkway.weights import default_model, open_checkpoint
from parkway.weights.shapes import SHAPES
from parkway.weights.summary import facts, type_totals

Settings = TypeVar("Settings", EngineSettings, ServerSettings)

_MODEL_HELP = (
    "GGUF file, Hugging Face folder, or shape:NAME[:TYPE] for random weights"
    " (default: SmolLM2-135M-Instruct, fetched once)"
)
_SHAPE_HELP = f"random weights in the shape of a model, made on this machine: {', '.join(SHAPES)}; TYPE: BF16, Q4_K, …"


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


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="parkway", description="An LLM server for many chats with exact answers.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"parkway {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    serve = _command(commands, "serve", _serve, "serve a model over HTTP", EngineSettings, ServerSettings)
    bench = _command(commands, "bench", _bench, "measure prefill and decode", EngineSettings)
    verify = _command(commands, "verify", _verify, "prove on this machine that answers don't depend on the traffic")
    _add_flags(verify, EngineSettings, "device")
    verify.add_argument(
        "--quick", action="store_const", const="quick", default="full", dest="mode", help="shorter chats, fewer of them"
    )
    verify.add_argument("--seed", default="0", metavar="N", help="of the sampled part of the product (default: 0)")
    source = bench.add_mutually_exclusive_group()
    source.add_argument("--shape", metavar="NAME[:TYPE]", help=_SHAPE_HELP)
    for command in (serve, source, verify):
        command.add_argument("model", nargs="?", type=Path, metavar="MODEL", help=_MODEL_HELP)
    inspect = _command(commands, "inspect", _inspect, "tell what is in a model file")
    inspect.add_argument("file", type=Path, metavar="FILE", help="GGUF file or Hugging Face folder")
    return parser


def _command(commands: Any, name: str, run: Any, about: str, *settings: type) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
    parser.set_defaults(run=run)
    for owner in settings:
        _add_flags(parser, owner, *(field.name for field in fields(owner)))
    return parser


def _add_flags(parser: argparse.ArgumentParser, owner: type, *names: str) -> None:
    """A flag for each of these fields of a class of settings."""
    kinds = get_type_hints(owner)
    for field in fields(owner):
        if field.name in names:
            default = f" (default: {field.default})" if field.default != "" else ""
            about = f"{field.metadata['about']}{default}".replace("%", "%%")
            parser.add_argument(
                *field.metadata["flags"], dest=field.name, metavar=_metavar(kinds[field.name]), help=about
            )
            if off := field.metadata["off"]:
                told = f"{field.metadata['flags'][-1]} off"
                parser.add_argument(off, dest=field.name, action="store_const", const="off", help=told)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    return "TEXT" if kind is str else "N"


def _settings(owner: type[Settings], arguments: argparse.Namespace) -> Settings:
    """The settings from flags, else from PARKWAY_<FIELD> variables, else from the class. Raises BadSetting.

    A field for which the command has no flag is the class's.
    """
    kinds = get_type_hints(owner)
    chosen: dict[str, Any] = {}
    for field in fields(owner):
        if field.name not in arguments:
            continue
        name, text = _given(field, arguments)
        if text is not None:
            chosen[field.name] = parse(name, text, kinds[field.name])
    return owner(**chosen)


def _given(field: Field[Any], arguments: argparse.Namespace) -> tuple[str, str | None]:
    text = getattr(arguments, field.name)
    if text is not None:
        return field.metadata["flags"][-1], text
    variable = f"PARKWAY_{field.name.upper()}"
    return variable, os.environ.get(variable)


def parse(name: str, text: str, kind: Any) -> Any:
    """The value of a flag or variable called `name`. Raises BadSetting."""
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise BadSetting(name, f"must be one of {', '.join(get_args(kind))}, not {text!r}")
        return text
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        what = "a whole number" if kind is int else "a number"
        raise BadSetting(name, f"must be {what}, not {text!r}")
    return value


def _model(arguments: argparse.Namespace) -> Path:
    given: Path | None = arguments.model
    return given or default_model.fetch()


def _serve(arguments: argparse.Namespace) -> int:
    settings = _settings(EngineSettings, arguments), _settings(ServerSettings, arguments)
    from parkway.api.server import serve

    return serve(_model(arguments), *settings)


def _verify(arguments: argparse.Namespace) -> int:
    seed = parse("--seed", arguments.seed, int)
    settings = _settings(EngineSettings, arguments)
    from parkway import verify

    return verify.run(_model(arguments), arguments.mode, seed, settings)


def _bench(arguments: argparse.Namespace) -> int:
    settings = _settings(EngineSettings, arguments)
    path = _model(arguments) if arguments.shape is None else _shape(arguments.shape)
    from parkway import bench

    return bench.run(path, settings)


def _shape(text: str) -> Path:
    """What `load_model` knows it by. Raises BadSetting."""
    name, _, _ = text.partition(":")
    if name not in SHAPES:
        raise BadSetting("--shape", f"must be one of {', '.join(SHAPES)}, not {name!r}")
    return Path(f"shape:{text}")


def _inspect(arguments: argparse.Namespace) -> int:
    file = open_checkpoint(arguments.file)
    told = Table("", "", show_header=False, title=Text(arguments.file.resolve().name), title_justify="left")
    for label, value in facts(file).items():
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
