"""Prints, as lines of JSON, what every candidate of the matrix products compiles to: run by test_linear_compile."""

import json

import torch

from parkway.backends.cuda import linear_plain, linear_stream
from parkway.backends.cuda.linear import gated, linear
from parkway.backends.cuda.linear_config import LinearConfig, every_candidate
from tests.backends.cuda.offline import Compiled, compile_instead

INSTRUCTIONS = ("wgmma.mma_async", "mma.sync", "cp.async.cg", "cp.async.bulk.tensor", "griddepcontrol.wait")


def _tell(operation: str, config: LinearConfig, made: Compiled) -> None:
    counts = {name: made.ptx.count(name) for name in INSTRUCTIONS}
    told = {"operation": operation, "config": list(config), "shared": made.shared, "stack": made.stack}
    print(json.dumps(told | {"registers": made.registers} | counts))


def main() -> None:
    linear_stream.multiprocessors = lambda device: 132  # type: ignore[attr-defined, assignment]
    compiled = [compile_instead(linear_plain.plain_kernel), compile_instead(linear_stream.stream_kernel)]
    x, weight = torch.zeros(5, 1024, dtype=torch.bfloat16), torch.zeros(512, 1024, dtype=torch.bfloat16)
    residual = torch.zeros(5, 512, dtype=torch.bfloat16)
    for config in every_candidate(streams=True):
        linear(x, weight, config, bias=residual[0], residual=residual, pdl=True)
        _tell("linear", config, compiled[config.kernel][-1])
    for config in every_candidate(matrices=2, streams=True):
        gated(x, weight, weight, config, pdl=True)
        _tell("gated", config, compiled[config.kernel][-1])


if __name__ == "__main__":
    main()
