"""``python -m regnum_bench``: the command ``regnum-bench``."""

import sys

from regnum_bench.command import main

if __name__ == "__main__":
    sys.exit(main())
