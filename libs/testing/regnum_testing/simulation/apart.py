"""The command in a process of its own, and what its runs came to."""

import json
import os
import subprocess
import sys
from typing import Any


def outcomes_apart(*words: str, hash_seed: str = "1") -> list[dict[str, Any]]:
    """Run it with ``--json``; fields of ``Outcome`` for each run.

    Args:
        words: seeds and options.
        hash_seed: of Python, in the environment.
    """
    run = subprocess.run(
        [sys.executable, "-m", "regnum_testing.simulation", "--json", *words],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert run.stdout, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]
