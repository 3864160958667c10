"""What holds for every test."""

import gc
import signal
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

# What an example takes is the machine's matter.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by what it changed: `make test` tries the same examples each time, other runs look for new ones.
settings.register_profile("the same each time", settings.get_profile("any machine"), derandomize=True)

# A shell starts a background job with SIGINT ignored, and a process hands that on to all that it starts: tests that
# interrupt a command would wait for ever. Whatever started the tests, the processes that they start hear SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

OBJECTS_LEFT_MAX: Final = 500_000
"""Objects of the garbage collector that one module may leave behind: the largest import has 290,000."""


def pytest_configure(config: pytest.Config) -> None:
    """Parts of `make test` leave the full tier out."""
    is_part = "not full" in config.getoption("markexpr")
    settings.load_profile("the same each time" if is_part else "any machine")


def pytest_collection_finish() -> None:
    """Three thousand collected tests stay until the end: the garbage collector need not look through them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def nothing_large_is_left_behind() -> Iterator[None]:
    """A module that keeps what it has read makes every collection in later tests slow.

    A heap of two million objects stops the process for more than a second each time, and for five to eighteen where a
    dozen processes share two processors: calls that a later test makes then go without their answer.
    """
    before = _objects()
    yield
    if _objects() - before > OBJECTS_LEFT_MAX:
        gc.collect()
        assert _objects() - before <= OBJECTS_LEFT_MAX, "kept by a cache or a fixture beyond its module"


def _objects() -> int:
    """Frozen ones, too: a process that a test stops thaws what was frozen when tests were collected."""
    return len(gc.get_objects()) + gc.get_freeze_count()
