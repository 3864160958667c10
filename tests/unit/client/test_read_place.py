"""Where a consumer reads a partition, and when it goes back to the leader (KIP-392)."""

from regnum_client.cluster.view import LeaderTerm
from regnum_client.consumer.read_place import AVOID_S, QUIET_S, STAY_S, ReadPlace
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId

LEADER, REPLICA = BrokerId(1), BrokerId(2)


def term(epoch: int = 0) -> LeaderTerm:
    return LeaderTerm(TopicId("T" * 22), LEADER, LeaderEpoch(epoch))


def test_the_leader_unless_it_named_a_replica() -> None:
    place = ReadPlace()
    assert (place.broker(term(), 0.0), place.may_be_sent(0.0)) == (LEADER, True)
    place.sent_to(REPLICA, term(), 0.0)
    assert place.broker(term(), 0.1) == REPLICA


def test_another_leader_is_asked_anew() -> None:
    place = ReadPlace()
    place.sent_to(REPLICA, term(), 0.0)
    assert place.broker(term(1), 0.1) == LEADER
    assert place.broker(term(), 0.2) == LEADER, "what an earlier one said is forgotten"


def test_a_replica_without_news_is_left_for_the_leader_to_say_where_they_are() -> None:
    place = ReadPlace()
    place.sent_to(REPLICA, term(), 0.0)
    assert place.broker(term(), QUIET_S - 0.1) == REPLICA
    assert place.broker(term(), QUIET_S) == LEADER
    assert place.may_be_sent(QUIET_S)


def test_a_replica_with_news_is_stayed_with_for_a_while() -> None:
    place = ReadPlace()
    place.sent_to(REPLICA, term(), 0.0)
    for second in range(1, int(STAY_S)):
        place.heard(float(second))
        assert place.broker(term(), second + 0.5) == REPLICA
    place.heard(STAY_S - 0.1)
    assert place.broker(term(), STAY_S) == LEADER


def test_a_replica_that_failed_is_left_alone_until_others_have_noticed() -> None:
    place = ReadPlace()
    place.sent_to(REPLICA, term(), 0.0)
    place.failed(1.0)
    assert place.broker(term(), 1.0) == LEADER
    assert not place.may_be_sent(AVOID_S)
    assert place.may_be_sent(1.0 + AVOID_S)
