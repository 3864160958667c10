import gc
import time

import pytest
from regnum_service.collector import LONG_S, short_collections

pytestmark = pytest.mark.alone


def test_what_survives_a_long_collection_is_not_walked_again() -> None:
    before = gc.get_threshold()
    with short_collections():
        frozen = gc.get_freeze_count()
        kept = [[[]] for _ in range(500_000)]
        gc.collect()
        assert gc.get_freeze_count() >= frozen + len(kept)
        gc.collect()
        began_s = time.thread_time()
        gc.collect()
        assert time.thread_time() - began_s < LONG_S
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_young_cycles_are_collected() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    with short_collections():
        for _ in range(100_000):
            Node()
        assert Node.alive < 50_000
