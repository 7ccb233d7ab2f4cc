"""Compiles the kernels that carry words and results, for a Hopper GPU without one; prints a line of JSON for each."""

import json

import torch

from parkway.backends.cuda import mapped
from tests.backends.cuda.offline import compile_instead

COUNTS = (1, 7, 16, 2048)


def main() -> None:
    made = {name: compile_instead(getattr(mapped, name)) for name in ("send_kernel", "fetch_kernel")}
    words = torch.zeros(max(COUNTS), dtype=torch.int32)
    for count in COUNTS:
        mapped.send(words, words, count, words, words, words, max(COUNTS) - count)
        mapped.fetch(words, words, count)
    for name, every in made.items():
        for compiled in every:
            print(json.dumps({"kernel": name, **compiled._asdict()}))


if __name__ == "__main__":
    main()
