"""Compiles what the sampler launches, for a Hopper GPU without one; prints a line of JSON for each kernel."""

import json

import torch

from parkway.backends.cuda.sample import ORDER, RESULT, Sampler
from parkway.backends.cuda.sample_chain import chain_kernel
from parkway.backends.cuda.sample_choice import choice_kernel
from parkway.backends.cuda.sample_edits import EDIT_WORDS, adopt_kernel, allow_kernel, move_kernel, tell_kernel
from parkway.backends.cuda.sample_sums import largest_kernel, sums_kernel
from tests.backends.cuda.offline import compile_instead

VOCABULARIES = (151_936, 50_257)
"""Of Qwen3, a multiple of 16, and of GPT-2, which is odd."""


class Editing(Sampler):
    """Runs what edited rows take beside the kernels of all rows."""

    def run(self, *_: object) -> None:
        pass


def main() -> None:
    always = (largest_kernel, sums_kernel, choice_kernel)
    edited = (allow_kernel, move_kernel, chain_kernel, adopt_kernel, tell_kernel)
    kernels = {kernel.fn.__name__: compile_instead(kernel) for kernel in (*always, *edited)}
    for vocabulary in VOCABULARIES:
        words = [torch.zeros((2, kind.itemsize // 4), dtype=torch.int32) for kind in (ORDER, RESULT)]
        logits, last_tokens = torch.zeros((2, vocabulary)), torch.zeros(2, dtype=torch.int32)
        out, edits = (last_tokens, words[1]), torch.zeros((2, EDIT_WORDS), dtype=torch.int32)
        place = torch.zeros(1, dtype=torch.int64)
        Sampler(vocabulary, 2, torch.device("cpu")).run(logits, words[0], *out, 2, pdl=True)
        Editing(vocabulary, 2, torch.device("cpu")).run_edited(logits, words[0], edits, place, *out, 2, pdl=True)
    for name, made in kernels.items():
        for vocabulary, compiled in zip(VOCABULARIES, made, strict=True):
            print(json.dumps({"kernel": name, "vocabulary": vocabulary, **compiled._asdict()}))


if __name__ == "__main__":
    main()
