"""Compiles what attention and row operations launch, for a Hopper GPU without one; prints a line of JSON for each."""

import json
from typing import Any

import torch

from parkway.backends import HeadNorms, Rope
from parkway.backends.cuda import attention_kernels, rows
from parkway.backends.cuda.attention import Configs, Scratch, Work, attention, few_candidates, many_candidates
from parkway.backends.cuda.attention_subjects import Shape
from parkway.backends.cuda.device import AHEAD, BEHIND
from parkway.plan.step import PAGE_TOKENS
from tests.backends.cuda.offline import Compiled, compile_instead

SHAPES = (Shape(32, 8, 128), Shape(4, 1, 256, window=512, soft_cap=50.0, sinks=True), Shape(9, 3, 80))
ROWS = 2


def main() -> None:
    few, many = compile_instead(attention_kernels.few), compile_instead(attention_kernels.many)
    for shape in SHAPES:
        fews, manys = (made(shape.group, shape.head_dim) for made in (few_candidates, many_candidates))
        if shape != SHAPES[0]:  # all of the most common shape, one of others
            fews, manys = fews[:1], manys[:1]
        for config in (*fews, *manys):
            attend(shape, Configs(config, config), config.apart)
            tell("few" if config.apart else "many", (few if config.apart else many)[-1], config=config, shape=shape)
    row_kernels()


def attend(shape: Shape, config: Configs, apart: int) -> None:
    heads, kv_heads, head_dim = shape[:3]
    q = torch.zeros(ROWS, (heads + 2 * kv_heads) * head_dim, dtype=torch.bfloat16)
    pool = torch.zeros(2, 3, 2, kv_heads, PAGE_TOKENS, head_dim, dtype=torch.bfloat16)
    lists = [torch.zeros(length, width, dtype=torch.int32) for length, width in ((apart, 8), (1 - apart, 5))]
    count = torch.zeros(1, dtype=torch.int32)
    attention(
        q[:, : heads * head_dim].view(ROWS, heads, head_dim),
        pool,
        1,
        torch.zeros(2, 5, dtype=torch.int32),
        Work(lists[0], count, lists[1], count),
        Scratch.allocate(8, heads, kv_heads, head_dim, torch.device("cpu")),
        torch.zeros(ROWS, heads, head_dim, dtype=torch.bfloat16),
        config=config,
        scale=head_dim**-0.5,
        window=shape.window,
        soft_cap=shape.soft_cap,
        sinks=torch.zeros(heads) if shape.sinks else None,
        pdl=BEHIND,
    )


def row_kernels() -> None:
    made = {name: compile_instead(getattr(rows, name)) for name in ("_embed", "_take", "_rms_norm", "_rope_and_write")}
    for pdl in (BEHIND, AHEAD):
        launch_rows(pdl)
        for name, compiled in made.items():
            tell(name, compiled[-1], pdl=pdl)


def launch_rows(pdl: int) -> None:
    words, values = torch.zeros(ROWS, dtype=torch.int32), torch.zeros(ROWS, 4096, dtype=torch.bfloat16)
    rows.embed(words, words, words, values, pdl=pdl)
    rows.take(values, words, pdl=pdl)
    rows.rms_norm(values, torch.zeros(4096), 1e-6, pdl=pdl)
    pool = torch.zeros(2, 3, 2, 8, PAGE_TOKENS, 128, dtype=torch.bfloat16)
    rope, norm = Rope(1e6, 128, "halves"), torch.zeros(128)
    fused = torch.zeros(ROWS, 48 * 128, dtype=torch.bfloat16)
    q, k, v = fused[:, :4096], fused[:, 4096:5120], fused[:, 5120:]
    turns, tables = torch.from_numpy(rope.turns(8)), torch.zeros(2, 5, dtype=torch.int32)
    rows.rope_and_write(q, k, v, turns, words, words, tables, pool, 1, rope, HeadNorms(norm, norm, 1e-6), pdl=pdl)


def tell(kernel: str, compiled: Compiled, **about: Any) -> None:
    print(json.dumps({"kernel": kernel, **about, **compiled._asdict()}))


if __name__ == "__main__":
    main()
