"""Compiles what delta nets launch, for a Hopper GPU without one; prints a line of JSON for each kernel."""

import json

import torch

from parkway.backends import DeltaNet, StateShape
from parkway.backends.cuda import delta, delta_kernels, delta_rows
from parkway.backends.cuda.delta_subjects import subjects
from parkway.memory.cuda_state_store import allocate
from tests.backends.cuda.offline import compile_instead

SHAPE = StateShape(layers=2, k_heads=16, v_heads=32, k_dim=128, v_dim=128, taps=4)


SMALL = subjects(torch.device("cpu"), 0)[0].shape
"""What the bit check computes: fewer heads than a tile has, and not as many of k as of v."""


def main() -> None:
    made = {name: compile_instead(getattr(delta_rows, name)) for name in ("_inputs", "_gated_norm")}
    made |= {name: compile_instead(getattr(delta_kernels, name)) for name in ("prepare", "rule")}
    launched(SHAPE)
    launched(SMALL)
    for name, compiled in made.items():
        cuts = delta.candidates(SHAPE) if name == "rule" else [delta.Config(0, 0, 0)]
        for each, config in zip(compiled, cuts * 2, strict=False):
            print(json.dumps({"kernel": name, "lanes": config.lanes, **each._asdict()}))


def launched(shape: StateShape) -> None:
    k_width, v_width = shape.k_heads * shape.k_dim, shape.v_heads * shape.v_dim
    widths = (k_width, k_width, v_width, v_width, shape.v_heads, shape.v_heads)
    words, wide = torch.zeros(4, 4, dtype=torch.int32), torch.zeros(4, sum(widths), dtype=torch.bfloat16)
    q, k, v, gate, a, b = wide.split(widths, dim=1)
    of_heads = torch.zeros(shape.v_heads)
    net = DeltaNet(1, torch.zeros((2 * k_width + v_width) * shape.taps), of_heads, of_heads, 1e-6)
    states = allocate(2, shape, wide.device)
    at = delta.Runs(words[0], words[1], torch.zeros(4, 5, dtype=torch.int32), words[:, :2].contiguous())
    for config in delta.candidates(shape):
        delta.delta_net(q, k, v, a, b, net, states, at, config, pdl=True)
    delta_rows.gated_norm(v, gate, torch.zeros(shape.v_dim), 1e-6, pdl=True)


if __name__ == "__main__":
    main()
