"""The command; see ``run``. Nothing is loaded before the hash seed is pinned."""

import sys

from regnum_testing.simulation import pin


def main() -> int:
    """Pin the hash seed, then run seeds."""
    pin(__package__)
    from regnum_testing.simulation.run import main as run  # noqa: PLC0415 - only once the hash seed is pinned

    return run()


if __name__ == "__main__":
    sys.exit(main())
