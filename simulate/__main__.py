"""python -m simulate study | run | draw: the resume-order study, one run of it, and a picture of a run or a server."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from parkway.api import trace
from parkway.plan.limits import FOREVER, Victim
from parkway.report import View
from simulate.costs import DEVICES
from simulate.draw import draw
from simulate.study import (
    DEFAULTS,
    EVERY_POLICY,
    EVERY_SCENE,
    QUANTUM,
    SCENE,
    SEEDS,
    STUDY,
    Cell,
    Policy,
    Scene,
    against_pass,
    simulated,
    study,
)
from simulate.timeline import read
from simulate.traffic import LENGTHS

COLUMNS = (
    "policy",
    "longest wait, s",
    "over pass",
    "makespan, s",
    "over pass",
    "parks per 1,000",
    "mean slowdown",
    "longest park, s",
    "latest start, s",
)


def main() -> int:
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except (OSError, ValueError) as error:
        print(f"simulate: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulate", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    many = commands.add_parser("study", help="policies on the same seeded chats, as a table")
    many.set_defaults(run=_study)
    many.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"for each policy ({SEEDS})")
    many.add_argument(
        "--quantum",
        type=float,
        nargs="+",
        default=[QUANTUM],
        metavar="SECONDS",
        help=f"of the server's own ({QUANTUM:g}); 0: none",
    )
    many.add_argument("--every-policy", action="store_true", help="not only the study's and the server's own")
    many.add_argument("--every-scene", action="store_true", help="all lengths, pools and numbers of chats")
    one = commands.add_parser("run", help="one run, traced as `parkway serve --trace` does")
    one.set_defaults(run=_run)
    one.add_argument("trace", type=Path, metavar="FILE")
    _add_scene(one)
    picture = commands.add_parser("draw", help="a trace as a PNG")
    picture.set_defaults(run=_draw)
    picture.add_argument("trace", type=Path, metavar="FILE")
    picture.add_argument("picture", type=Path, metavar="PNG")
    return parser


def _add_scene(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", choices=LENGTHS, default=SCENE.lengths)
    parser.add_argument("--chats", type=int, default=SCENE.chats, metavar="N")
    parser.add_argument("--pool", type=int, default=SCENE.pool, metavar="N", help="tokens")
    parser.add_argument("--device", choices=DEVICES, default=SCENE.device)
    parser.add_argument("--every", type=float, default=SCENE.every, metavar="SECONDS", help="mean, between arrivals")
    parser.add_argument("--resume", choices=("head", "pass"), default="head")
    parser.add_argument("--victim", choices=get_args(Victim), default="cheapest")
    parser.add_argument("--quantum", type=float, default=QUANTUM, metavar="SECONDS", help="0: none")
    parser.add_argument("--seed", type=int, default=0, metavar="N")


def _study(arguments: argparse.Namespace) -> None:
    turns = (replace(policy, quantum=seconds or FOREVER) for seconds in arguments.quantum for policy in DEFAULTS)
    policies = EVERY_POLICY if arguments.every_policy else (*STUDY, *turns)
    for scene in EVERY_SCENE if arguments.every_scene else (SCENE,):
        Console().print(table(scene, study(scene, policies, arguments.seeds)))


def table(scene: Scene, cells: list[Cell]) -> Table:
    made = Table(*COLUMNS, title=f"{scene}: {len(cells[0].outcomes)} seeds", title_justify="left")
    for column in made.columns[1:]:
        column.justify = "right"
    for cell in cells:
        passed = against_pass(cell, cells)
        made.add_row(
            str(cell.policy),
            f"{cell.longest_wait:.1f}",
            f"{cell.longest_wait / passed.longest_wait:.2f}" if passed.longest_wait else "",
            f"{cell.seconds:.1f}",
            f"{cell.seconds / passed.seconds:.3f}",
            f"{cell.parks_per_1000:.2f}",
            f"{cell.slowdown:.2f}",
            f"{cell.longest_park:.1f}",
            f"{cell.latest_start:.1f}",
        )
    return made


def _run(arguments: argparse.Namespace) -> None:
    scene = Scene(arguments.lengths, arguments.chats, arguments.pool, arguments.device, arguments.every)
    policy = Policy(arguments.resume, arguments.victim, arguments.quantum or FOREVER)
    with arguments.trace.open("wb") as file:
        settings = {"ctx_size": scene.pool, "parallel": scene.chats, "policy": str(policy), "seed": arguments.seed}
        file.write(trace.header(f"simulated: {scene}", settings))

        def watch(view: View) -> None:
            file.write(trace.moment(view))

        outcome = simulated(scene, policy, arguments.seed, watch)
    print(
        f"{policy}: {outcome.tokens} tokens in {outcome.seconds:.1f} s and {outcome.steps} steps; "
        f"{outcome.parks} parks, {outcome.recomputes} of them computed again; "
        f"the longest wait was {outcome.longest_wait:.1f} s"
    )


def _draw(arguments: argparse.Namespace) -> None:
    draw(read(arguments.trace)).save(arguments.picture, "PNG")


if __name__ == "__main__":
    sys.exit(main())
