"""How far the news of the controller has come, in the words of the wire."""

from types import SimpleNamespace

import pytest
from regnum.propagation.v1 import propagation_pb2
from regnum_election.decisions.cluster import Cluster
from regnum_election.publication.lag import describe_propagation
from regnum_election.publication.subscriber import MetadataProcess
from regnum_model.ids import ControllerEpoch, MetadataId
from regnum_model.nodes import Address
from regnum_model.picture_line import PictureVersion
from regnum_testing.held_loop import HeldLoop, run_measured

pytestmark = pytest.mark.alone

HEAD = PictureVersion(ControllerEpoch(3), 10)


def process(id: int) -> MetadataProcess:
    return MetadataProcess(
        id=MetadataId(id), creation_id=1, internal=Address(host="h", port=1), client=Address(host="h", port=id)
    )


def answer(epoch: int, *acknowledged: int) -> propagation_pb2.DescribeLagResponse:
    return propagation_pb2.DescribeLagResponse(
        controller_epoch=epoch,
        version=9,
        payload_serialisations=4,
        brokers=[
            propagation_pb2.BrokerLag(broker_id=number, broker_epoch=7, acknowledged_version=version)
            for number, version in enumerate(acknowledged)
        ],
    )


class Metadata:
    """Metadata processes that answer what a test says."""

    def __init__(self, *lags: tuple[MetadataProcess, int | None, propagation_pb2.DescribeLagResponse | None]) -> None:
        self.journal = SimpleNamespace(head=HEAD)
        self._lags = lags

    async def lags(self) -> list[tuple[MetadataProcess, int | None, propagation_pb2.DescribeLagResponse | None]]:
        return list(self._lags)


async def test_brokers_are_behind_what_the_controller_published_last() -> None:
    told = await describe_propagation(Metadata((process(1), 1, answer(3, 10, 7, 0))), Cluster())
    (one,) = told.metadata_processes
    assert (told.version, one.version) == ((3 << 32) + 10, (3 << 32) + 9)
    assert [broker.versions_behind for broker in one.brokers] == [0, 3, -1]
    assert (one.answered, one.versions_behind, one.payload_serialisations) == (True, 1, 4)


async def test_what_another_reign_acknowledged_says_nothing() -> None:
    told = await describe_propagation(Metadata((process(1), None, answer(2, 10))), Cluster())
    assert [broker.versions_behind for broker in told.metadata_processes[0].brokers] == [-1]


async def test_a_process_that_does_not_answer_is_named_all_the_same() -> None:
    told = await describe_propagation(Metadata((process(1), 4, None), (process(2), 0, answer(3, 10))), Cluster())
    assert [(one.metadata_id, one.answered) for one in told.metadata_processes] == [(1, False), (2, True)]


def test_the_lags_of_a_thousand_brokers_are_told() -> None:
    async def scenario(held: HeldLoop) -> None:
        metadata = Metadata(*((process(id), 0, answer(3, *[10] * 200)) for id in range(5)))
        with held.measuring("lags of 1000 brokers"):
            told = (await describe_propagation(metadata, Cluster())).SerializeToString()
        assert told

    run_measured(scenario).assert_free()
