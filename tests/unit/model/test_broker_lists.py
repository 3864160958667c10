"""Two lists of brokers that say the same have one digest, and no others."""

from regnum.types.v1.types_pb2 import Broker, Endpoint
from regnum_model.broker_lists import NO_BROKERS, BrokerLists, digest_of


def broker(id: int, *, epoch: int = 7, port: int = 9092) -> Broker:
    return Broker(id=id, epoch=epoch, client=Endpoint(host="h", port=port))


def test_whoever_says_the_same_has_the_same_digest() -> None:
    here, there = BrokerLists(), BrokerLists()
    brokers = broker(1), broker(2)
    received = tuple(Broker.FromString(one.SerializeToString()) for one in brokers)
    assert here.digest(brokers) == there.digest(received) != NO_BROKERS


def test_any_change_is_another_digest() -> None:
    lists = [
        (broker(1), broker(2)),
        (broker(1),),
        (broker(1), broker(2), broker(3)),
        (broker(1), broker(2, epoch=8)),
        (broker(1), broker(2, port=9093)),
    ]
    assert len({BrokerLists().digest(one) for one in lists}) == len(lists)
    assert digest_of([b"ab", b"c"]) != digest_of([b"a", b"bc"])


def test_no_brokers_are_no_list() -> None:
    assert BrokerLists().digest(()) == digest_of([]) == NO_BROKERS


def test_a_list_is_gone_through_once() -> None:
    looks = 0

    class Looked:
        def SerializeToString(self, *, deterministic: bool = False) -> bytes:  # noqa: N802
            nonlocal looks
            looks += 1
            return b"broker"

    lists, brokers = BrokerLists(), (Looked(), Looked())
    assert {lists.digest(brokers) for _ in range(5)} == {digest_of([b"broker", b"broker"])}
    assert looks == 2
    lists.digest((Looked(),))
    assert looks == 3
