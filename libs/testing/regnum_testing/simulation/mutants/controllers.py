"""Mutants of what controllers decide and write, and of how metadata travels."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from regnum_broker.cluster.orders.roles import end_role
from regnum_broker.servicers.control import ReplicaControlServicer
from regnum_broker.serving import metadata_cache
from regnum_coordination.drivers.memory import MemoryServer
from regnum_coordination.port import Check
from regnum_coordination.recipes import leadership as reigns
from regnum_election.brokers import changes
from regnum_election.decisions import leadership, liveness, topic_nodes
from regnum_election.decisions.cluster import Topic
from regnum_election.dispatch import control_requests
from regnum_election.publication.delta_log import Journal
from regnum_election.reign.reign import Reign
from regnum_election.topics import adoption
from regnum_metadata.lane import BrokerLane
from regnum_model import insync, paths
from regnum_model.ids import NO_LEADER, PartitionKey, TopicId
from regnum_model.nodes import Membership
from regnum_quota.admission import Ledger

from regnum_testing.simulation.mutants.mutant import Mutant, replaced

Surroundings: Final = leadership.Surroundings


def elects_bounced() -> None:
    """A bounce since a member was recorded does not count."""
    replaced(Surroundings, "is_intact", lambda _: Surroundings.is_restorable)


def leads_on_after_a_bounce() -> None:
    """And it is told that it leads, in the leader epoch in which it did before."""
    elects_bounced()
    replaced(control_requests, "_is_from_before", lambda _: lambda state, broker: False)


def any_log() -> None:
    """Nor does another log."""

    def make(able: Any) -> Any:
        del able
        return lambda self, id, members: self._able(id) is not None

    replaced(Surroundings, "is_restorable", make)


def _no_elr() -> None:
    def make(with_isr: Any) -> Any:
        def mutated(*arguments: Any, **named: Any) -> Any:
            state = with_isr(*arguments, **named)
            return replace(state, elr=(), members={id: state.members[id] for id in state.isr})

        return mutated

    replaced(insync, "with_isr", make)


def _unclean() -> None:
    def make(settle: Any) -> Any:
        def mutated(state: Any, replicas: Any, surroundings: Any, *, min_insync: int) -> Any:
            decision = settle(state, replicas, surroundings, min_insync=min_insync)
            is_change = isinstance(decision, leadership.Change)
            no_leader = decision.state.leader == NO_LEADER if is_change else state.leader == NO_LEADER
            live = [id for id in replicas if id in surroundings.brokers]
            if not no_leader or not live:
                return decision
            broker = surroundings.brokers[live[0]]
            (log_id,) = broker.log_ids
            elected = replace(
                state,
                leader=broker.id,
                leader_epoch=state.leader_epoch + 1,
                isr=(broker.id,),
                elr=(),
                members={broker.id: Membership(broker_epoch=broker.epoch, log_id=log_id)},
                controller_epoch=surroundings.controller_epoch,
            )
            return leadership.Change(state=elected, kind=leadership.ChangeKind.ELECTED)

        return mutated

    replaced(leadership, "settle", make)


def _writes_without_epoch() -> None:
    replaced(Reign, "fence", lambda _: property(lambda self: Check(paths.CONTROLLER_EPOCH)))


def _fences_without_guard() -> None:
    # There alone: the same name is what everything else writes with.
    setattr(changes, "Set", lambda path, data, version: Check(path))  # noqa: B010 - to mypy it is no name of the module's


def _any_interval() -> None:
    def make(joins: Any) -> Any:
        def mutated(head: Any, own: Any) -> bool:
            # A question after the version is no change: it begins where it ends.
            changes_something = 0 < head.from_version < head.to_version
            return bool(joins(head, own)) or (changes_something and own.epoch == head.controller_epoch)

        return mutated

    replaced(metadata_cache, "_joins", make)


def takes_for_arrived() -> None:
    """A sender of metadata takes what got no answer for what the broker has, and does not ask."""

    def mutated(self: Any) -> None:
        head = self._source.head
        self._position = head if self._said.epoch == head.epoch else None

    replaced(BrokerLane, "_unknown", lambda _: mutated)


def _max_broker_epoch_of_the_start() -> None:
    def make(published: Any) -> Any:
        def mutated(self: Any, *arguments: Any, **named: Any) -> Any:
            known = self._max_broker_epoch
            to = published(self, *arguments, **named)
            self._max_broker_epoch = known or self._max_broker_epoch
            return to

        return mutated

    replaced(Journal, "publish", make)


def _init_deletes() -> None:
    def make(note: Any) -> Any:
        def mutated(self: Any, request: Any) -> None:
            before = self._full_set
            named = set() if before is None else set(before.keys)
            note(self, request)
            if self._full_set is not None:
                return
            named |= {PartitionKey(TopicId(item.topic_id), item.state.partition) for item in request.partitions}
            stops = self._orders._stops
            strays = [one for one in self._replicas if one.key not in named]
            for stray in strays:
                end_role(stray, replicas=self._replicas, fetchers=stops._fetchers)
            asyncio.create_task(stops._delete({one.key: 0 for one in strays}))  # noqa: RUF006 - the loop keeps it

        return mutated

    replaced(ReplicaControlServicer, "_note_full_set", make)


def _every_state_is_new() -> None:
    replaced(
        topic_nodes,
        "judge_state",
        lambda judge: lambda id, found, **named: judge(id, found, **{**named, "creating": True}),
    )
    replaced(adoption, "_remembering", lambda _: lambda picture, id, members: members)


def _no_mutation_is_known() -> None:
    def make(init: Any) -> Any:
        return lambda self, **named: init(self, **{**named, "mutation": None})

    replaced(Topic, "__init__", make)


def _tokens_are_forgotten() -> None:
    def make(init: Any) -> Any:
        def mutated(self: Any, *arguments: Any, **named: Any) -> None:
            init(self, *arguments, **named)
            self._inherited = frozenset()

        return mutated

    replaced(Ledger, "__init__", make)
    replaced(Ledger, "take_over", lambda _: lambda *_, **__: None)


def _silence_is_enough() -> None:
    replaced(liveness, "_judge", lambda _: lambda answering, others, listener: liveness.Verdict.FENCE)


def _foreign_controller_stays() -> None:
    replaced(reigns.Leadership, "_is_foreign", lambda _: staticmethod(lambda node: False))


def _sessions_write_on() -> None:
    def make(carry_out: Any) -> Any:
        def mutated(self: Any, transaction: Any) -> Any:
            session = self._sessions[transaction.session_id]
            if session.alive:
                return carry_out(self, transaction)
            return tuple(self._carry_out_group(group, session.id) for group in transaction.groups)

        return mutated

    replaced(MemoryServer, "carry_out", make)


def _one_outcome_for_all() -> None:
    def make(carry_out: Any) -> Any:
        def mutated(self: Any, transaction: Any) -> Any:
            outcomes = carry_out(self, transaction)
            return outcomes[:1] * len(outcomes)

        return mutated

    replaced(MemoryServer, "carry_out", make)


MUTANTS: Final = (
    Mutant(
        name="bounced-elected",
        rules="S10, T1",
        breaks="a member that has failed since it was recorded counts as one that has been up",
        apply=elects_bounced,
        story="a_leader_bounces_unseen",
    ),
    Mutant(
        name="any-log",
        rules="S10, T2, T5",
        breaks="whoever was a member may be elected, whatever log its registration names",
        apply=any_log,
        story="a_follower_loses_power_between_reigns",
    ),
    Mutant(
        name="no-elr",
        rules="S10, T7",
        breaks="eligible replicas are not kept",
        apply=_no_elr,
        story="complete_copies_come_back",
    ),
    Mutant(
        name="unclean",
        rules="S10",
        breaks="any live replica is elected where no member may be",
        apply=_unclean,
        story="an_outsider_is_alone",
    ),
    Mutant(
        name="writes-without-epoch",
        rules="S3",
        breaks="a controller's writes do not check that it still reigns",
        apply=_writes_without_epoch,
        story="a_reign_ends_before_its_write",
    ),
    Mutant(
        name="fence-without-guard",
        rules="S2",
        breaks="a fence deletes the registration without the guard that tells it from the next one",
        apply=_fences_without_guard,
        story="an_outsider_is_alone",
    ),
    Mutant(
        name="any-interval",
        rules="S17",
        breaks="a broker applies a metadata change of its reign whatever it has itself",
        apply=_any_interval,
        story="a_change_of_metadata_is_lost",
        beside=(takes_for_arrived,),
    ),
    Mutant(
        name="old-max-broker-epoch",
        rules="S18",
        breaks="max_broker_epoch is not that of the same snapshot as the broker list",
        apply=_max_broker_epoch_of_the_start,
        story="a_leader_bounces",
    ),
    Mutant(
        name="init-deletes",
        rules="S12, S13",
        breaks="a broker deletes what the full set of orders leaves out",
        apply=_init_deletes,
        story="a_state_is_lost",
    ),
    Mutant(
        name="silence-is-enough",
        rules="S9",
        breaks="a controller fences every silent broker, whether or not others answer it",
        apply=_silence_is_enough,
        story="a_controller_hears_no_broker",
    ),
    Mutant(
        name="foreign-controller-stays",
        rules="S7",
        breaks="a /controller that is nobody's stays where it is",
        apply=_foreign_controller_stays,
        story="a_person_writes_controller",
    ),
    Mutant(
        name="state-guessed",
        rules="S14",
        breaks="a partition whose state is gone is taken for a new one, by the reign that goes on and by the next one",
        apply=_every_state_is_new,
        story="a_state_is_lost",
    ),
    Mutant(
        name="mutation-happens-twice",
        rules="S20",
        breaks="a controller does not know which mutation made a topic",
        apply=_no_mutation_is_known,
        story="an_answer_of_a_creation_is_lost",
    ),
    Mutant(
        name="tokens-forgotten",
        rules="S21",
        breaks="a quota process that becomes active begins with full buckets",
        apply=_tokens_are_forgotten,
        story="quota_processes_die",
    ),
    Mutant(
        name="sessions-write-on",
        rules="S6",
        breaks="the store takes conditional writes of a session that is over",
        apply=_sessions_write_on,
        story="a_session_ends_before_its_write",
    ),
    Mutant(
        name="one-outcome-for-all",
        rules="S4",
        breaks="the groups of a batch are all told the outcome of the first",
        apply=_one_outcome_for_all,
    ),
)
"""Those of this module."""
