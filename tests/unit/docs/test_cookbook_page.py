"""A recipe of the cookbook ends where the log does, and not where nothing comes for a while."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

from regnum_client import ConsumedRecord, TopicPartition
from regnum_testing.page_commands import python

PAGE: Final = Path(__file__).parents[3] / "docs/use/cookbook.md"


class Interrupted:
    """A consumer of three records whose leader changes after the first: for some reads nothing comes."""

    def __init__(self) -> None:
        self._reads: Final = [1, 0, 0, 2]
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def assign(self, topic: str, **_start: Any) -> None:
        """As of sync.Consumer, as is all below."""
        self.assignment = frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})

    def end_offsets(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """The second partition is empty."""
        return {one: 0 if one.partition else 3 for one in partitions}

    def position(self, partition: TopicPartition) -> int:
        return 0 if partition.partition else self._position

    def read(self, **_timeout: float) -> list[ConsumedRecord]:
        first, self._position = self._position, self._position + self._reads.pop(0)
        return [
            ConsumedRecord(
                topic="orders",
                partition=0,
                offset=offset,
                timestamp_ms=1,
                key=None,
                value=b"",
                headers=(),
            )
            for offset in range(first, self._position)
        ]


def test_a_replay_goes_on_over_a_change_of_leader_and_then_ends() -> None:
    page: dict[str, Any] = {}
    exec(compile(python(PAGE.read_text(encoding="utf-8")), PAGE.name, "exec"), page)  # noqa: S102 - what the page shows
    page["sync"] = SimpleNamespace(Consumer=Interrupted)
    assert [record.offset for record in page["since"](1)] == [0, 1, 2]
