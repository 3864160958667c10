"""All that a broker's disks hold, in pages, for a controller that goes by nothing else."""

from types import SimpleNamespace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.servicers.replica_logs import QUERIES_MAX, ReplicaLogs
from regnum_model.ids import PartitionKey, TopicId
from regnum_service.errors import RegnumError


class Replicas:
    """Replicas without a role, in no order."""

    def __init__(self, keys: list[PartitionKey]) -> None:
        self._found = {key: _partition(key) for key in reversed(keys)}

    def __iter__(self):
        return iter(self._found.values())

    def get(self, key: PartitionKey):
        return self._found.get(key)


def _partition(key: PartitionKey) -> SimpleNamespace:
    log = SimpleNamespace(last_record_epoch=3, highest_leader_epoch=4, log_start_offset=0, log_end_offset=key.partition)
    return SimpleNamespace(key=key, log=log, leader_epoch=2, high_watermark=0, role=None)


def _key(number: int) -> PartitionKey:
    return PartitionKey(TopicId(f"{number % 7:022d}"), number)


def _logs(keys: list[PartitionKey], *, offline: tuple[PartitionKey, ...] = (), failed: bool = False) -> ReplicaLogs:
    directory = SimpleNamespace(failed=failed, offline=dict.fromkeys(offline), log_id="log")
    return ReplicaLogs(Replicas(keys), SimpleNamespace(directory=directory))


async def _all(logs: ReplicaLogs) -> tuple[list[PartitionKey], list[int], int]:
    found: list[PartitionKey] = []
    codes: list[int] = []
    after, more, pages = None, True, 0
    while more:
        page, more = await logs.describe_all(after)
        found += [PartitionKey(TopicId(one.topic_id), one.partition) for one in page]
        codes += [one.error_code for one in page]
        after, pages = found[-1] if found else None, pages + 1
    return found, codes, pages


@pytest.mark.parametrize(
    ("count", "pages"), [(0, 1), (1, 1), (QUERIES_MAX, 1), (QUERIES_MAX + 1, 2), (20 * QUERIES_MAX + 3, 21)]
)
async def test_each_replica_is_told_once_in_pages(count: int, pages: int) -> None:
    keys = [_key(number) for number in range(count)]
    found, codes, took = await _all(_logs(keys))
    assert found == sorted(keys)
    assert set(codes) <= {errors_pb2.ERROR_CODE_NONE}
    assert took == pages


async def test_a_replica_that_cannot_be_used_is_told_with_its_error() -> None:
    """Left out, it would look as if this broker had nothing."""
    found, codes, _ = await _all(_logs([_key(1)], offline=(_key(2),)))
    assert dict(zip(found, codes, strict=True)) == {
        _key(1): errors_pb2.ERROR_CODE_NONE,
        _key(2): errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR,
    }


async def test_a_directory_that_failed_says_that_nobody_knows() -> None:
    with pytest.raises(RegnumError) as refused:
        await _logs([_key(1)], failed=True).describe_all(None)
    assert refused.value.code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR


async def test_a_replica_that_is_there_and_cannot_be_used_is_told_once() -> None:
    found, codes, _ = await _all(_logs([_key(1), _key(2)], offline=(_key(2),)))
    assert found == [_key(1), _key(2)]
    assert codes == [errors_pb2.ERROR_CODE_NONE, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR]
