"""Texts of llama-server's flags as the settings have them. None: as if the flag had not been given.

All raise ValueError with what is wrong. Knows neither flags nor settings.
"""

import re
from collections.abc import Callable
from pathlib import Path

Read = Callable[[str], str | None]


def unless(*texts: str) -> Read:
    return lambda text: None if text in texts else text


def device(text: str) -> str:
    return {"none": "cpu", "CUDA0": "cuda"}.get(text, text)


def layers(text: str) -> str | None:
    if text == "0":
        return "cpu"
    if text in ("all", "auto", "-1") or (text.isdecimal() and int(text) >= 99):
        return None
    raise ValueError(f"must be all, auto, 99 or more, or 0 for the CPU, not {text!r}: a model isn't cut in two here")


def budget(text: str) -> str | None:
    if text in ("0", "-1"):
        return "off" if text == "0" else None
    raise ValueError(f"must be 0 or -1, not {text!r}: thoughts can't be cut short")


def contents(text: str) -> str:
    try:
        return Path(text).read_text()
    except (OSError, ValueError) as error:
        raise ValueError(f"{text}: can't be read: {getattr(error, 'strerror', None) or error}") from error


def keys(text: str) -> str:
    lines = [line.strip() for line in contents(text).splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError(f"{text}: there is no key in it")
    return ",".join(keys)


def template(text: str) -> str:
    if text and "{" not in text:
        raise ValueError(f"must be a Jinja template: there are none with names such as {text[:40]!r}")
    return text


def on_the_hub(url: str) -> str:
    found = re.fullmatch(r"https://(?:huggingface|hf)\.co/([^/]+/[^/]+)/(?:resolve|blob)/main/([^?]+)(?:\?.*)?", url)
    if found is None:
        raise ValueError("only files of the hub are fetched by URL; fetch it yourself and name the file")
    return f"{found[1]}:{found[2]}"


def unescaped(text: str) -> str:
    known = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
    return re.sub(r"\\([nrt'\"\\])", lambda found: known[found[1]], text)


def loud(text: str) -> str | None:
    return "parks" if text == "on" or (text.isdecimal() and int(text) >= 4) else None


def quiet(_: str) -> str:
    return "warnings"


def format_of(jsonl: str) -> str:
    return "json" if jsonl == "on" else "text"


def whole(text: str) -> str:
    """-1 stands for all."""
    return "0" if text == "-1" else text
