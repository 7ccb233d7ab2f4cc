"""Who comes back first, in simulated time: prints and records longest wait and makespan, head of line over pass.

Both are means over the seeds, in the study's scene. Pass is as the study had it: the smallest chat is parked, and
nobody for having stayed too long. Head of line is the order alone, and as a server does it, with its turns. A wait is
one for room, of a chat that is parked or has not started: in the system whose study this repeats every chat starts at
once and is parked at once, so that its figures have both.
"""

import argparse
from pathlib import Path

from benchmarks import records
from benchmarks.records import RESULTS
from simulate.study import DEFAULTS, SCENE, SEEDS, STUDY, study

COMMAND = "python -m benchmarks.resume_order"
REACH = {"longest single wait": 0.43, "makespan": 1.02}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS / "cpu.json", metavar="FILE", help="where records go")
    arguments = parser.parse_args()
    passed, alone, served = study(SCENE, (*STUDY, DEFAULTS[1]), SEEDS)
    for name, head in (("head", alone), ("head of line as served", served)):
        ratios = (head.longest_wait / passed.longest_wait, head.seconds / passed.seconds)
        for (what, reach), ratio in zip(REACH.items(), ratios, strict=True):
            figure = f"simulator: {what}, {name} over pass"
            print(f"{figure}: {ratio:.3f} (reach: {reach})")
            records.write(
                arguments.results,
                figure=figure,
                value=round(ratio, 3),
                unit="times",
                better="lower",
                reach=reach,
                command=COMMAND,
            )


if __name__ == "__main__":
    main()
