"""The command; see ``run``.

The order of sets of texts is part of a run, and Python draws it for each process. So the command starts itself anew,
with the hash seed that it was told, whatever the environment says, before anything else is loaded.
"""

import os
import sys
from typing import Final

VARIABLE: Final = "PYTHONHASHSEED"
OPTION: Final = "--hash-seed"
DEFAULT: Final = "0"


def main() -> int:
    """Pin the hash seed, then run seeds."""
    words = sys.argv[1:]
    told = words[words.index(OPTION) + 1] if OPTION in words[:-1] else DEFAULT
    if os.environ.get(VARIABLE) != told:
        os.execve(  # noqa: S606 - itself
            sys.executable, [sys.executable, "-m", __package__, *words], {**os.environ, VARIABLE: told}
        )
    from regnum_testing.simulation.run import main as run  # noqa: PLC0415 - only once the hash seed is pinned

    return run()


if __name__ == "__main__":
    sys.exit(main())
