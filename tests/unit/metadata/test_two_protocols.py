"""Below inter.broker.protocol.version 2 each broker is told its own epoch, from 2 on all are told the highest."""

from regnum.replication.v1 import control_pb2
from regnum_metadata.payload import PayloadBuilder, for_one_broker, question
from regnum_model.ids import BrokerEpoch
from regnum_testing.metadata_values import broker, change, done, image, topic


def read(part: bytes) -> control_pb2.UpdateMetadataRequest:
    return control_pb2.UpdateMetadataRequest.FromString(part)


def test_a_payload_for_one_broker_differs_from_the_shared_one_by_the_epochs_alone() -> None:
    picture = image(change(0, 1, topic("a", 1, 2), topic("b", 3), brokers=[broker(1, epoch=7), broker(2, epoch=9)]))
    for shared in (done(PayloadBuilder().full(picture)), question(picture)):
        own = for_one_broker(shared.parts, BrokerEpoch(7))
        first = read(own[0])
        assert (first.broker_epoch, first.max_broker_epoch) == (7, -1)
        assert (read(shared.parts[0]).broker_epoch, read(shared.parts[0]).max_broker_epoch) == (0, 9)
        first.broker_epoch, first.max_broker_epoch = 0, 9
        assert first == read(shared.parts[0])
        assert all(mine is theirs for mine, theirs in zip(own[1:], shared.parts[1:], strict=True)), "bytes are shared"
