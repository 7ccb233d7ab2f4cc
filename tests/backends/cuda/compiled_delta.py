"""Compiles what delta nets launch, for a Hopper GPU without one; prints a line of JSON for each kernel."""

import json

import torch

from parkway.backends import DeltaNet, StateShape
from parkway.backends.cuda import delta, delta_kernels, delta_rows
from parkway.memory.cuda_state_store import allocate
from tests.backends.cuda.offline import compile_instead

SHAPE = StateShape(layers=2, k_heads=16, v_heads=32, k_dim=128, v_dim=128, taps=4)


def main() -> None:
    made = {name: compile_instead(getattr(delta_rows, name)) for name in ("_inputs", "_gated_norm")}
    made |= {name: compile_instead(getattr(delta_kernels, name)) for name in ("prepare", "rule")}
    words, wide = torch.zeros(4, 4, dtype=torch.int32), torch.zeros(4, 12352, dtype=torch.bfloat16)
    q, k, v, gate, a, b = wide.split((2048, 2048, 4096, 4096, 32, 32), dim=1)
    of_heads = torch.zeros(32)
    net = DeltaNet(1, torch.zeros(8192 * 4), of_heads, of_heads, 1e-6)
    states = allocate(2, SHAPE, wide.device)
    at = delta.Runs(words[0], words[1], torch.zeros(4, 5, dtype=torch.int32), words[:, :2].contiguous())
    for config in delta.candidates(SHAPE):
        delta.delta_net(q, k, v, a, b, net, states, at, config, pdl=True)
    delta_rows.gated_norm(v, gate, torch.zeros(128), 1e-6, pdl=True)
    for name, compiled in made.items():
        cuts = delta.candidates(SHAPE) if name == "rule" else [delta.Config(0, 0, 0)]
        for each, config in zip(compiled, cuts, strict=False):
            print(json.dumps({"kernel": name, "lanes": config.lanes, **each._asdict()}))


if __name__ == "__main__":
    main()
