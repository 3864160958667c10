"""Keys go where Kafka's clients send them; keyless records go round."""

import pytest
from regnum_client.producer.batches.partitioner import StickyRoundRobin, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text: str, hashed: int) -> None:
    assert murmur2(text.encode()) == hashed


def test_a_key_always_goes_to_the_same_partition_and_keys_spread() -> None:
    chosen = {key: partition_for_key(key, 7) for key in (f"key-{number}".encode() for number in range(200))}
    assert {partition_for_key(key, 7) for key in chosen for _ in range(2)} == set(range(7))
    assert all(partition_for_key(key, 7) == partition for key, partition in chosen.items())


def test_keyless_records_stay_until_the_batch_is_closed() -> None:
    partitioner = StickyRoundRobin(4)
    assert [partitioner.current("t", 3) for _ in range(3)] == [1, 1, 1]
    partitioner.batch_turned("t", 1, 3)
    assert partitioner.current("t", 3) == 2
    partitioner.batch_turned("t", 0, 3)  # a batch of a keyed record elsewhere
    assert partitioner.current("t", 3) == 2
    partitioner.batch_turned("t", 2, 3)
    assert partitioner.current("t", 3) == 0


def test_topics_take_turns_on_their_own() -> None:
    partitioner = StickyRoundRobin(0)
    partitioner.batch_turned("a", 0, 3)
    assert (partitioner.current("a", 3), partitioner.current("b", 3)) == (1, 0)
