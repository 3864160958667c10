"""Peak memory of a controller and a metadata process: who is played, what is swept, what is too much."""

from itertools import islice

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_bench.publish import BESIDE, MEASURED, ids_of, sizes_of, too_much
from regnum_bench.receivers import Receiver, carried_out
from regnum_bench.shape import Shape
from regnum_metadata.ownership import owner


@pytest.mark.parametrize(("brokers", "sizes"), [(200, (1, 50, 200)), (8, (1, 2, 8)), (3, (1, 3)), (1, (1,))])
def test_one_a_quarter_and_all_of_the_brokers_arrive(brokers: int, sizes: tuple[int, ...]) -> None:
    assert sizes_of(Shape(brokers=brokers, replication_factor=1)) == sizes


def test_receivers_and_holders_belong_to_different_metadata_processes() -> None:
    receivers, holders = list(islice(ids_of(MEASURED), 200)), list(islice(ids_of(BESIDE), 3))
    assert {owner(id, (MEASURED, BESIDE)) for id in receivers} == {MEASURED}
    assert {owner(id, (MEASURED, BESIDE)) for id in holders} == {BESIDE}
    # Another list of processes names another owner of some: what is chosen is what the rule says, and not all there is.
    assert len(set(receivers)) == 200
    assert max(receivers) > 200


@pytest.mark.parametrize(
    ("metadata", "controller", "payload", "complained"),
    [
        (2.9, 3.0, 4e6, []),
        (3.1, 0.5, 4e6, ["metadata_ratio"]),
        (1.0, 3.2, 4e6, ["controller_ratio"]),
        # A small payload is less than the fixed cost of the streams.
        (80.0, 500.0, 2e3, []),
    ],
)
def test_more_than_three_payloads_are_a_complaint(
    metadata: float, controller: float, payload: float, complained: list[str]
) -> None:
    one = {"metadata_ratio": metadata, "controller_ratio": controller, "shared_1_payload_bytes": payload}
    assert [complaint.split()[0] for complaint in too_much([one])] == complained


def test_an_order_is_acknowledged_replica_by_replica() -> None:
    states = [
        control_pb2.LeaderAndIsrPartition(topic_id="a", state=types_pb2.PartitionState(partition=number))
        for number in (4, 2)
    ]
    led = carried_out(control_pb2.LeaderAndIsrRequest(partitions=states))
    stopped = carried_out(
        control_pb2.StopReplicaRequest(partitions=[control_pb2.StopReplicaPartition(topic_id="b", partition=-1)])
    )
    assert [(one.topic_id, one.partition, one.error_code) for one in led.results] == [
        ("a", 4, errors_pb2.ERROR_CODE_NONE),
        ("a", 2, errors_pb2.ERROR_CODE_NONE),
    ]
    assert [(one.topic_id, one.partition) for one in stopped.results] == [("b", -1)]


def test_a_receiver_that_claims_to_have_everything_is_sent_nothing_until_it_forgets() -> None:
    asked = control_pb2.UpdateMetadataRequest(controller_epoch=3, from_version=7, to_version=7, parts=1)
    told = control_pb2.UpdateMetadataRequest(controller_epoch=3, from_version=7, to_version=8, parts=1)
    everything = control_pb2.UpdateMetadataRequest(controller_epoch=3, from_version=0, to_version=8, parts=1)
    one = Receiver(applies=False)
    assert one.take([asked.SerializeToString()]).version == 0
    assert one.take([asked.SerializeToString()], claims=True).version == 7
    assert one.take([told.SerializeToString()], claims=True).version == 8
    one.forget()
    refused = one.take([told.SerializeToString()])
    assert (refused.version, refused.error_code) == (0, errors_pb2.ERROR_CODE_INVALID_REQUEST)
    assert one.take([everything.SerializeToString()]).version == 8
    # The change that it was told, and the whole; what it claimed it was never sent.
    assert [version for version, _, _ in one.seen] == [8, 8]
