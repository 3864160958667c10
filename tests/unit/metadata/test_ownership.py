"""Who serves whom."""

from collections.abc import Collection, Iterable

from hypothesis import given
from hypothesis import strategies as st
from regnum_metadata.ownership import owner
from regnum_model.ids import BrokerId, MetadataId

PROCESSES = st.frozensets(st.integers(0, 50).map(MetadataId), min_size=1, max_size=6)
BROKERS = st.frozensets(st.integers(0, 500).map(BrokerId), max_size=40)


def owned(by: MetadataId, brokers: Iterable[BrokerId], processes: Collection[MetadataId]) -> frozenset[BrokerId]:
    return frozenset(broker for broker in brokers if owner(broker, processes) == by)


def test_nobody_serves_without_processes() -> None:
    assert owner(BrokerId(1), []) is None


@given(PROCESSES, BROKERS)
def test_every_broker_has_exactly_one_process(processes: frozenset[MetadataId], brokers: frozenset[BrokerId]) -> None:
    shares = [owned(process, brokers, processes) for process in processes]
    assert sum(len(share) for share in shares) == len(brokers)
    assert frozenset().union(*shares) == brokers


@given(PROCESSES, BROKERS, st.data())
def test_only_the_brokers_of_a_process_that_goes_move(
    processes: frozenset[MetadataId], brokers: frozenset[BrokerId], data: st.DataObject
) -> None:
    leaving = data.draw(st.sampled_from(sorted(processes)))
    left = processes - {leaving}
    for broker in brokers:
        before = owner(broker, processes)
        if before != leaving:
            assert owner(broker, left) == before


def test_two_processes_share_many_brokers_about_evenly() -> None:
    brokers = [BrokerId(id) for id in range(200)]
    share = owned(MetadataId(1), brokers, (MetadataId(1), MetadataId(2)))
    assert 70 <= len(share) <= 130
