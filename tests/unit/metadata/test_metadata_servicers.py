"""What the metadata service answers, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.metadata.v1 import metadata_pb2
from regnum.propagation.v1 import propagation_pb2
from regnum.types.v1 import errors_pb2
from regnum_metadata.propagation import Propagation
from regnum_metadata.servicers.metadata import MetadataServicer
from regnum_metadata.servicers.propagation import PropagationServicer
from regnum_model.epochs import is_plausible
from regnum_model.ids import ControllerEpoch, MetadataId
from regnum_service.clock import SystemClock
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import HeldImage
from regnum_service.errors import RegnumError
from regnum_service.name_order import NameOrder
from regnum_testing.metadata_values import ReceivingBroker, broker, change, image, topic

NO_FEED = ClusterFeed(HeldImage)
"""Nobody watches."""


async def near_the_first(epoch: int) -> bool:
    return is_plausible(epoch, 0)


async def nowhere(_epoch: int) -> bool:
    return False


Part = propagation_pb2.PublishChangesRequest


def propagation() -> Propagation:
    return Propagation(
        id=MetadataId(1),
        open_stream=lambda _address: ReceivingBroker(),
        clock=SystemClock(),
        believes=near_the_first,
        shows=nowhere,
        spawn=lambda name, coroutine: asyncio.get_running_loop().create_task(coroutine, name=name),
    )


async def asked(
    servicer: MetadataServicer, request: metadata_pb2.GetMetadataRequest
) -> metadata_pb2.GetMetadataResponse:
    return metadata_pb2.GetMetadataResponse.FromString(await servicer.GetMetadata(request, None))


async def sent(*parts: Part) -> AsyncIterator[Part]:
    for part in parts:
        yield part


def part(number: int, *, last: bool = False, to: int = 1, name: str = "a", epoch: int = 3, since: int = 0) -> Part:
    return Part(
        controller_id=2,
        controller_epoch=epoch,
        from_version=since,
        to_version=to,
        part=number,
        last=last,
        cluster_id="c",
        topics=[topic(name, 1)],
    )


async def test_a_change_in_parts_is_taken_as_one() -> None:
    target = propagation()
    answer = await PropagationServicer(target).PublishChanges(
        sent(part(0), part(1, name="b"), part(2, name="c", last=True)), None
    )
    assert (answer.controller_epoch, answer.version) == (3, 1)
    assert set(target.image.topics) == {"a", "b", "c"}
    lag = await PropagationServicer(target).DescribeLag(propagation_pb2.DescribeLagRequest(), None)
    assert (lag.controller_epoch, lag.version, lag.payload_serialisations) == (3, 1, 0)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (part(0),),
        (part(1, last=True),),
        (part(0), part(2, last=True)),
        (part(0, last=True), part(1, last=True)),
        (part(0), part(1, to=2, last=True)),
        (part(0, to=0, last=True),),
        (part(0, since=-1, last=True),),
    ],
)
async def test_a_change_that_is_not_whole_changes_nothing(parts: tuple[Part, ...]) -> None:
    target = propagation()
    with pytest.raises(RegnumError) as refused:
        await PropagationServicer(target).PublishChanges(sent(*parts), None)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert target.image.version == 0


async def test_a_replaced_controller_is_refused_with_the_highest_epoch_seen() -> None:
    target = propagation()
    await PropagationServicer(target).PublishChanges(sent(part(0, last=True, epoch=9)), None)
    with pytest.raises(RegnumError) as refused:
        await PropagationServicer(target).PublishChanges(sent(part(0, last=True, epoch=8)), None)
    assert refused.value.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
    assert refused.value.metadata == {"controller_epoch": "9"}


async def test_a_gap_is_answered_with_the_version_to_go_on_from() -> None:
    servicer = PropagationServicer(propagation())
    answer = await servicer.PublishChanges(sent(part(0, since=4, to=5, last=True)), None)
    assert (answer.controller_epoch, answer.version, answer.version_epoch) == (3, 0, 0)


async def test_the_version_that_a_process_has_is_named_with_its_epoch() -> None:
    servicer = PropagationServicer(propagation())
    await servicer.PublishChanges(sent(part(0, to=9, last=True)), None)
    answer = await servicer.PublishChanges(sent(part(0, since=4, to=5, epoch=4, last=True)), None)
    assert (answer.controller_epoch, answer.version, answer.version_epoch) == (4, 9, 3)


async def test_a_reign_goes_on_from_the_one_before() -> None:
    target = propagation()
    await PropagationServicer(target).PublishChanges(sent(part(0, to=9, last=True)), None)
    joining = part(0, since=9, to=10, epoch=5, name="b", last=True)
    joining.base_epoch, joining.base_version, joining.all_brokers = 3, 9, True
    answer = await PropagationServicer(target).PublishChanges(sent(joining), None)
    assert (answer.controller_epoch, answer.version, answer.version_epoch) == (5, 10, 5)
    assert set(target.image.topics) == {"a", "b"}


@pytest.mark.parametrize(
    ("since", "base_epoch", "base_version", "all_brokers"),
    [
        (9, 5, 9, True),
        (9, 6, 9, True),
        (9, -1, 9, True),
        (9, 3, 8, True),
        (9, 3, 10, True),
        (9, 3, 9, False),
        (0, 3, 9, True),
    ],
)
async def test_a_base_that_cannot_be_is_refused(
    since: int, base_epoch: int, base_version: int, all_brokers: bool
) -> None:
    target = propagation()
    await PropagationServicer(target).PublishChanges(sent(part(0, to=9, last=True)), None)
    joining = part(0, since=since, to=10, epoch=5, last=True)
    joining.base_epoch, joining.base_version, joining.all_brokers = base_epoch, base_version, all_brokers
    with pytest.raises(RegnumError) as refused:
        await PropagationServicer(target).PublishChanges(sent(joining), None)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert target.image.version == 9


async def test_metadata_for_clients_comes_from_the_image() -> None:
    known = image(change(0, 4, topic("b", 1, 2), topic("a", 3), brokers=[broker(1), broker(2)], epoch=6))
    servicer = MetadataServicer(lambda: known, NameOrder(), NO_FEED)
    everything = await asked(servicer, metadata_pb2.GetMetadataRequest())
    assert sorted(item.topic.name for item in everything.topics) == ["a", "b"]
    assert [item.id for item in everything.brokers] == [1, 2]
    assert (everything.version, everything.controller.id, everything.cluster_id) == ((6 << 32) + 4, 7, "cluster")
    chosen = await asked(servicer, metadata_pb2.GetMetadataRequest(topics=["b", "none", "no/name", "b"]))
    assert [(item.topic.name, item.error_code) for item in chosen.topics] == [
        ("b", errors_pb2.ERROR_CODE_NONE),
        ("none", errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION),
        ("no/name", errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION),
    ]
    assert [state.leader for state in chosen.topics[0].topic.partitions] == [1, 2]
    without = await asked(servicer, metadata_pb2.GetMetadataRequest(brokers_only=True, topics=["b"]))
    assert (len(without.brokers), len(without.topics)) == (2, 0)


async def test_a_controller_epoch_out_of_nowhere_is_refused_and_the_controller_goes_on() -> None:
    target = propagation()
    for epoch in (2**31 - 1, 2**16 + 1):
        with pytest.raises(RegnumError) as caught:
            await PropagationServicer(target).PublishChanges(sent(part(0, last=True, epoch=epoch)), None)
        assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    # Nor is a broker believed that says it has heard of one.
    answer = await PropagationServicer(target).PublishChanges(sent(part(0, last=True)), None)
    await target.seen(ControllerEpoch(2**31 - 1))
    await target.seen(ControllerEpoch(4))
    assert (answer.controller_epoch, target.highest_epoch) == (3, 3)


async def test_the_list_of_brokers_is_left_out_for_whoever_has_it() -> None:
    first = image(change(0, 1, topic("a", 1), brokers=[broker(1), broker(2)]))
    servicer = MetadataServicer(lambda: first, NameOrder(), NO_FEED)
    answer = await asked(servicer, metadata_pb2.GetMetadataRequest(topics=["a"]))
    assert ([item.id for item in answer.brokers], answer.brokers_unchanged) == ([1, 2], False)
    known = metadata_pb2.GetMetadataRequest(topics=["a"], known_brokers=answer.brokers_digest)
    again = await asked(servicer, known)
    assert (len(again.brokers), again.brokers_unchanged, again.brokers_digest) == (0, True, answer.brokers_digest)
    assert [item.topic.name for item in again.topics] == ["a"]
    later = image(change(0, 1, topic("a", 1), brokers=[broker(1), broker(2, epoch=9)]))
    changed = await asked(MetadataServicer(lambda: later, NameOrder(), NO_FEED), known)
    assert ([item.epoch for item in changed.brokers], changed.brokers_unchanged) == ([1, 9], False)


async def test_no_brokers_are_never_left_out() -> None:
    nothing = image()
    answer = await asked(MetadataServicer(lambda: nothing, NameOrder(), NO_FEED), metadata_pb2.GetMetadataRequest())
    assert (answer.brokers_digest, answer.brokers_unchanged) == (0, False)
