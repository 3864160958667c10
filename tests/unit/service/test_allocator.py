"""What a process keeps of the memory that it lets go of."""

import subprocess
import sys
from types import SimpleNamespace

from regnum_service.allocator import KEPT_BYTES, LARGE_BYTES, keep_freed_memory

MESSAGES = f"""
import resource, sys
sys.path[:] = {sys.path!r}
from regnum_service.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for messages in range(25):
    if messages == 5:
        began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    several = [b"x" * 500_000 for _ in range(5)]
    del several
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began)
"""
"""Copies of one message, which are let go of together, twenty times; and page faults of them all."""


def faults(told: str) -> int:
    program = [sys.executable, "-S", "-c", MESSAGES, told]
    return int(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def test_messages_of_half_a_megabyte_cost_no_new_memory() -> None:
    assert faults("keep") < 200
    assert faults("nothing") > 2_000


def test_both_thresholds_are_set() -> None:
    told: dict[int, int] = {}
    library = SimpleNamespace(mallopt=told.setdefault)
    assert keep_freed_memory(library)
    assert told == {-1: KEPT_BYTES, -3: LARGE_BYTES}


def test_a_c_library_without_these_settings_is_left_alone() -> None:
    assert not keep_freed_memory(SimpleNamespace())
    assert not keep_freed_memory(SimpleNamespace(mallopt=lambda _name, _value: 0))
