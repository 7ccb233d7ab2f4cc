"""How long `make test` takes on a fresh clone of this repository: environment, kernels, model, checks and tests.

python -m benchmarks.fresh_clone, with everything committed; the user's package cache is used, the home folder is new.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import records

COMMAND = "python -m benchmarks.fresh_clone"
REACH_MINUTES = 10.0
_ROOT = Path(__file__).parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
        environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        environment.pop("VIRTUAL_ENV", None)
        started = time.perf_counter()
        subprocess.run(["make", "test"], cwd=clone, env=environment, check=True)
        minutes = (time.perf_counter() - started) / 60
    print(f"{minutes:.1f} minutes")
    records.write(
        records.RESULTS / "cpu.json",
        figure="make test on a fresh clone",
        value=round(minutes, 2),
        unit="min",
        better="lower",
        reach=REACH_MINUTES,
        command=COMMAND,
    )


if __name__ == "__main__":
    main()
