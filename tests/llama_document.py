"""docs/llama-server.md, made of the table of flags: `python -m tests.llama_document` writes it."""

from pathlib import Path

from parkway.config import EngineSettings, ModelSettings, RequestDefaults, ServerSettings
from parkway.flags import flagged
from parkway.llama_flags import LLAMA_FLAGS, Fate, LlamaFlag

DOCUMENT = Path(__file__).parent.parent / "docs" / "llama-server.md"
OWNERS = (ModelSettings, EngineSettings, ServerSettings, RequestDefaults)
ABOUT = {field.name: field.metadata["about"] for owner in OWNERS for field in flagged(owner)}

HEAD = """# llama-server's command line

`parkway serve` takes the flags of llama-server and its `LLAMA_ARG_…` variables. Each of them is in one of three lists:
it is honoured; it has no effect on answers, and the server says so once when it starts; or it is refused by name, since
answers would silently not be what was asked for. A flag that is in none of the lists is an error.

What is said in several places: a flag wins over a `PARKWAY_…` variable, that over one of llama-server, that over the
default. Switches take `true`, `1`, `on` or `enabled`, and `false`, `0`, `off` or `disabled`, in variables;
`LLAMA_ARG_NO_X`, whatever its value, switches off what `LLAMA_ARG_X` switches on. Defaults are Parkway's own
(`parkway serve --help`), which for sampling are those of the OpenAI API: temperature 1, no top-k, top-p or min-p.

This page is made of the table in [llama_flags.py](../src/parkway/llama_flags.py) by `python -m tests.llama_document`.
"""

NOTES = """
- `-c 0`, the context that the model was trained with, is refused: say how many tokens the pool holds.
- `-np -1`, `-t -1`, `-n -1`, `-s -1` and `--reasoning-budget -1` are as if the flag were left out.
- `-ngl 0` computes on the CPU; `all`, `auto`, -1, and 99 or more are as if it were left out; any other is refused.
- `--device none` is the CPU, `CUDA0` the GPU.
- `-r` reads `\\n`, `\\r`, `\\t`, `\\'`, `\\"` and `\\\\`.
- The defaults of requests hold where a request leaves the field out. A default form of answers (`--grammar`,
  `--json-schema`) holds where a request has no form of its own and no tools.
- `-v`, and `-lv` from 4 on, are `--log parks`; `--log-disable` is `--log warnings`.
- `-m` is a path. The MODEL behind `parkway serve` may be a path or `OWNER/NAME[:FILE or QUANT]` on the hub; a path that
  exists wins. A file of up to 50 GB comes from the hub by plain HTTP, its first bytes first, because that goes on where
  an earlier start was killed; Xet's parallel download, which begins anew then, is for larger ones alone.
"""


def document() -> str:
    return "\n".join((HEAD, "## Honoured\n", *_honoured(), NOTES, *_idle(), *_refused()))


def _honoured() -> list[str]:
    rows = [_row(_names(flag), _variables(flag), ABOUT.get(flag.field, "as everywhere")) for flag in _those("honoured")]
    return ["| flag | variable | |", "|---|---|---|", *rows]


def _idle() -> list[str]:
    groups = dict.fromkeys(flag.why for flag in _those("no effect"))
    told = [f"{why[0].upper()}{why[1:]}: {', '.join(map(_told, _those('no effect', why)))}.\n" for why in groups]
    return ["## No effect\n", *told]


def _refused() -> list[str]:
    rows = [_row(_told(flag), _neutral(flag), flag.why) for flag in _those("refused")]
    return ["## Refused\n", "| flag | but taken | why |", "|---|---|---|", *rows, ""]


def _those(fate: Fate, why: str = "") -> list[LlamaFlag]:
    return [flag for flag in LLAMA_FLAGS if flag.fate == fate and why in ("", flag.why)]


def _names(flag: LlamaFlag) -> str:
    value = f" {flag.value}" if flag.value else ""
    spelled = [f"`{name}`" for name in flag.names] + [f"`{name}`" for name in flag.off_names]
    return f"{', '.join(spelled)[:-1]}{value}`"


def _variables(flag: LlamaFlag) -> str:
    return ", ".join(f"`{name}`" for name in flag.variables)


def _told(flag: LlamaFlag) -> str:
    return f"{_names(flag)} ({_variables(flag)})" if flag.variables else _names(flag)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _neutral(flag: LlamaFlag) -> str:
    if flag.value or not flag.neutral:
        return ", ".join(f"`{text}`" for text in flag.neutral)
    return ", ".join(f"`{name}`" for name in (flag.names if "on" in flag.neutral else flag.off_names))


if __name__ == "__main__":
    DOCUMENT.write_text(document())
