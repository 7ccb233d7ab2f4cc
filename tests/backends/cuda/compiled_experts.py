"""Prints, as lines of JSON, what candidates of mixtures of experts compile to: run by test_experts_compile."""

import json

import torch

from parkway.backends import Experts
from parkway.backends.cuda import experts_plain, experts_route, experts_rows, experts_stream
from parkway.backends.cuda.experts import mixture
from parkway.backends.cuda.experts_config import FEW_ROWS, candidates, every_candidate
from parkway.backends.cuda.experts_quantised import Rooms
from parkway.backends.cuda.experts_stack import Stack
from tests.backends.cuda.offline import Compiled, compile_instead

INSTRUCTIONS = ("wgmma.mma_async", "mma.sync", "cp.async.cg", "cp.async.bulk.tensor", "griddepcontrol.wait")
COUNT, CHOSEN, WIDTH, FFN = 128, 8, 2048, 768


def _tell(name: str, made: Compiled, config: object = ()) -> None:
    counts = {each: made.ptx.count(each) for each in INSTRUCTIONS}
    told = {"name": name, "config": config, "shared": made.shared, "stack": made.stack, "registers": made.registers}
    print(json.dumps(told | counts))


def _stack(rows: int, columns: int) -> Stack:
    return Stack(COUNT, torch.empty((COUNT * rows, columns), dtype=torch.bfloat16))  # never touched: takes no memory


def main() -> None:
    experts_stream.multiprocessors = lambda device: 132  # type: ignore[attr-defined, assignment]
    rows = {
        name: compile_instead(getattr(module, name))
        for module, names in (
            (experts_route, ("_route_few", "_route_block", "_place_block")),
            (experts_rows, ("_spread", "_combine", "_combine_norm")),
        )
        for name in names
    }
    products = [
        compile_instead(experts_plain.grouped_kernel),
        compile_instead(experts_stream.grouped_stream_kernel),
    ]
    how = Experts(COUNT, CHOSEN, None, None, None, None, "all", False)
    stacks = (_stack(FFN, WIDTH), _stack(FFN, WIDTH), _stack(WIDTH, FFN))
    for config in every_candidate(streams=True):
        for height in (1, 16, FEW_ROWS, FEW_ROWS + 1):
            if config in candidates(height, streams=True):
                x = torch.zeros((height, WIDTH), dtype=torch.bfloat16)
                sums = mixture(x, torch.zeros((height, COUNT)), how, stacks, x, config, Rooms(), pdl=True)
                sums.rows(pdl=True), sums.normed(torch.zeros(WIDTH), 1e-6, pdl=True)
                for name, product in zip(("up", "down"), products[config.kernel][-2:], strict=True):
                    _tell(name, product, config)
    for name, compiled in rows.items():
        for made in set(compiled):
            _tell(name, made)


if __name__ == "__main__":
    main()
