"""When a partition's leader may be tried again."""

from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.producer.trouble import Trouble
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId


def term(leader: int, epoch: int) -> LeaderTerm:
    return LeaderTerm(TopicId("T" * 22), BrokerId(leader), LeaderEpoch(epoch))


def test_a_new_leader_that_has_not_been_told_yet_is_tried_again_without_another_question() -> None:
    trouble, view = Trouble(), ClusterView(as_of_s=10.01)
    trouble.failed(term(1, 0), "gone", refresh=True, now_s=10.0, chance=0.5)
    assert not trouble.needs_metadata(view, term(2, 1))
    trouble.failed(term(2, 1), "does not lead", refresh=True, now_s=10.1, chance=0.5, in_office=False)
    assert not trouble.needs_metadata(view, term(2, 1))
    assert trouble.pause_until_s(term(2, 1)) == 10.12
    # Once: whoever says so again has perhaps been replaced in its turn.
    trouble.failed(term(2, 1), "does not lead", refresh=True, now_s=10.2, chance=0.5, in_office=False)
    assert trouble.needs_metadata(view, term(2, 1))


def test_a_leader_that_led_and_does_not_any_more_calls_for_metadata() -> None:
    trouble, view = Trouble(), ClusterView(as_of_s=10.01)
    trouble.failed(term(1, 0), "does not lead", refresh=True, now_s=10.1, chance=0.5, in_office=False)
    assert trouble.needs_metadata(view, term(1, 0))


def test_a_new_leader_that_cannot_be_reached_calls_for_metadata() -> None:
    trouble, view = Trouble(), ClusterView(as_of_s=10.01)
    trouble.failed(term(1, 0), "gone", refresh=True, now_s=10.0, chance=0.5)
    trouble.failed(term(2, 1), "gone", refresh=True, now_s=10.1, chance=0.5)
    assert trouble.needs_metadata(view, term(2, 1))
