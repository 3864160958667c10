"""The commands ``regnum-broker``, ``regnum-election``, ``regnum-metadata``, ``regnum-quota`` and ``regnum-bench``.

They are on every PATH that has ``regnum``, with a client's packages alone too: what is missing then is said here,
before anything of it is imported. Services are found by name, as their launcher finds them: libraries do not know them.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

WRONG_USE: Final = 2
"""Exit status when the program cannot run in this installation."""

SERVICES: Final = ("structlog", "pydantic_settings", "immutables", "grpc_health", "grpc_reflection", "re2")
"""Modules that the extra ``services`` draws in, and that every service imports."""
BENCH: Final = (*SERVICES, "matplotlib")

VERBOSITY: Final = "GRPC_VERBOSITY"
"""Variable that gRPC reads when it is imported."""
SILENT: Final = "NONE"
"""Nothing is said."""
READ_BACK: Final = "INFO"
"""With which services count what gRPC in C says on stderr (``native_stderr``): a line for each call that it refuses,
and for each handshake that fails, however many a client makes of them. What is worth a line is in their own logs."""


def service_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that a service is started with: gRPC's lines are read back, unless somebody wants to see them.

    NONE and ERROR, which commands set for themselves, are no such wish.
    """
    said = environ.get(VERBOSITY, SILENT)
    return {**environ, VERBOSITY: READ_BACK if said in {SILENT, "ERROR"} else said}


def broker() -> int:
    """``regnum-broker``."""
    return _run("regnum-broker", "regnum_broker.__main__", SERVICES, "services,etcd")


def election() -> int:
    """``regnum-election``."""
    return _run("regnum-election", "regnum_election.__main__", SERVICES, "services,etcd")


def metadata() -> int:
    """``regnum-metadata``."""
    return _run("regnum-metadata", "regnum_metadata.__main__", SERVICES, "services,etcd")


def quota() -> int:
    """``regnum-quota``."""
    return _run("regnum-quota", "regnum_quota.__main__", SERVICES, "services,etcd")


def bench() -> int:
    """``regnum-bench``."""
    return _run("regnum-bench", "regnum_bench.command", BENCH, "bench")


def missing(modules: Sequence[str] = SERVICES) -> tuple[str, ...]:
    """Those of these modules that are not installed; none of them is imported."""
    return tuple(name for name in modules if find_spec(name) is None)


def in_words(absent: Sequence[str], extras: str) -> str:
    """What is not installed, and how it gets there."""
    what = f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"
    return f"{what}; install with: pip install 'regnum[{extras}]'"


def _run(command: str, module: str, needed: tuple[str, ...], extras: str) -> int:
    absent = missing((module.partition(".")[0], *needed))
    if absent:
        sys.stderr.write(f"{command} cannot run here: {in_words(absent, extras)}\n")
        return WRONG_USE
    os.environ.update(service_environment(os.environ) if "services" in extras else {VERBOSITY: SILENT, **os.environ})
    status = import_module(module).main()
    return status if isinstance(status, int) else 0
