"""Mutants of what leaders and followers do."""

from dataclasses import replace
from typing import Any, Final

from regnum_broker.log import epochs
from regnum_broker.log.directory import LogDirectory
from regnum_broker.replication import isr_writer, leader
from regnum_broker.replication.decisions import isolation, isr, orders, truncation, watermark
from regnum_broker.replication.sessions import fetch_positions
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Refused, Set, Store, Unknown
from regnum_model import insync
from regnum_model.ids import LeaderEpoch
from regnum_model.nodes import BrokerNode, Membership

from regnum_testing.simulation.mutants.controllers import any_log, leads_on_after_a_bounce
from regnum_testing.simulation.mutants.mutant import Mutant, replaced


class _Settling:
    """A session with the store whose unknown outcomes are refusals: what is read next is believed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write_batch(self, groups: Any, *, fence: Any = None) -> Any:
        outcomes = await self._store.write_batch(groups, fence=fence)
        return tuple(
            Refused(ConnectionLoss("no answer")) if isinstance(outcome, Unknown) else outcome for outcome in outcomes
        )


def _settled_by_a_look() -> None:
    def make(init: Any) -> Any:
        def mutated(self: Any, *, store: Any, **named: Any) -> None:
            init(self, store=lambda: None if (one := store()) is None else _Settling(one), **named)

        return mutated

    replaced(isr_writer.IsrWriter, "__init__", make)


def _isr_without_registrations() -> None:
    def make(attempt: Any) -> Any:
        def mutated(self: Any, *arguments: Any) -> Any:
            made = attempt(self, *arguments)
            return made and replace(made, group=tuple(one for one in made.group if isinstance(one, Set)))

        return mutated

    replaced(isr_writer.IsrWriter, "_attempt", make)


def _join_without_broker_epoch() -> None:
    def membership(joiner: Any, node: Any) -> Any:
        if node is None:
            return None
        (log_id,) = BrokerNode.decode(node.data).directories.values()
        return Membership(broker_epoch=node.stat.creation_id, log_id=log_id)

    replaced(isr_writer, "_membership", lambda _: membership)
    _isr_without_registrations()


def _counts_the_proposed_alone() -> None:
    def make(counted: Any) -> Any:
        def mutated(self: Any, now_s: float) -> Any:
            if self.proposed_isr is None:
                return counted(self, now_s)
            return set(self.proposed_isr)

        return mutated

    replaced(leader.Leadership, "_counted", make)


def _commits_alone() -> None:
    replaced(insync, "may_commit", lambda _: lambda state, *, min_insync: True)


def _joins_behind() -> None:
    replaced(isr, "may_join", lambda _: lambda progress, leader_end, **_: progress.has_fetched)


def _joins_before_the_epoch() -> None:
    replaced(
        isr,
        "may_join",
        lambda before: (
            lambda progress, leader_end, *, high_watermark, epoch_start: before(
                progress, leader_end, high_watermark=high_watermark, epoch_start=0
            )
        ),
    )


def _commits_by_itself() -> None:
    replaced(watermark, "advanced", lambda _: lambda present, *, leader_end, **_: max(present, leader_end))


def _truncates_to_the_high_watermark() -> None:
    def decide(of_leader: Any, *, of_follower: Any, log_end: int, high_watermark: int) -> truncation.Truncation:
        return truncation.Truncation(min(high_watermark, log_end), done=True)

    replaced(truncation, "decide", lambda _: decide)


def _does_not_truncate() -> None:
    def end(self: Any, epoch: LeaderEpoch, *, log_end_offset: int) -> epochs.EpochEnd:
        return epochs.EpochEnd(epoch=epoch, end_offset=log_end_offset)

    replaced(epochs.EpochCache, "end_offset_for", lambda _: end)


def _fetches_of_any_epoch() -> None:
    def make(refusal: Any) -> Any:
        def mutated(position: Any, partition: Any, follower: Any) -> Any:
            if partition is not None:
                position.epoch = partition.leader_epoch
            return refusal(position, partition, follower)

        return mutated

    replaced(fetch_positions, "refusal", make)


def _believes_itself() -> None:
    replaced(isolation, "is_cut_off", lambda _: lambda **_: False)


def _leads_again() -> None:
    def make(judge: Any) -> Any:
        def mutated(standing: Any, state: Any, **named: Any) -> Any:
            verdict = judge(standing, state, **named)
            return orders.Verdict.NEW_ROLE if verdict is orders.Verdict.FENCED else verdict

        return mutated

    replaced(orders, "judge", make)


def _leads_with_another_log() -> None:
    def make(judge: Any) -> Any:
        def mutated(standing: Any, state: Any, **named: Any) -> Any:
            verdict = judge(standing, state, **named)
            return orders.Verdict.NEW_ROLE if verdict is orders.Verdict.OTHER_LOG else verdict

        return mutated

    replaced(orders, "judge", make)


def _leads_without_writing_it_down() -> None:
    def record(self: Any, epochs_: Any, *, sync: bool = True) -> None:
        del sync
        for key, epoch, start in epochs_:
            self.replicas[key].leader_epochs.assign(epoch, start)

    replaced(LogDirectory, "record_leader_epochs", lambda _: record)


def _reports_no_isr() -> None:
    replaced(isr_writer.IsrWriter, "_report_state", lambda _: lambda self, attempt, version: None)


MUTANTS: Final = (
    Mutant(
        name="settled-by-a-look",
        rules="S1",
        breaks="a leader whose ISR write got no answer reads the node, and takes what it sees for the outcome",
        apply=_settled_by_a_look,
        story="a_joining_is_late",
    ),
    Mutant(
        name="isr-without-registrations",
        rules="S2, S3",
        breaks="an ISR write checks neither the topic's guard nor anybody's registration",
        apply=_isr_without_registrations,
        story="a_joining_member_bounces",
    ),
    Mutant(
        name="join-without-broker-epoch",
        rules="S3",
        breaks="a follower joins with the registration that is live, and not with that of its fetches",
        apply=_join_without_broker_epoch,
        story="a_joining_member_loses_power_unseen",
    ),
    Mutant(
        name="counted-before-confirmed",
        rules="S1, S15",
        breaks="the high watermark counts the ISR that is proposed and not the one that stands",
        apply=_counts_the_proposed_alone,
        story="a_shrink_is_lost",
    ),
    Mutant(
        name="below-min-insync",
        rules="S10, S15",
        breaks="records are committed below min.insync.replicas, and while the ELR is not empty",
        apply=_commits_alone,
        story="the_last_of_the_isr_goes_on",
    ),
    Mutant(
        name="join-behind",
        rules="S15",
        breaks="a follower joins the ISR wherever its log ends",
        apply=_joins_behind,
        story="a_follower_comes_back",
    ),
    Mutant(
        name="join-before-epoch",
        rules="S15",
        breaks="a follower joins the ISR before its log has reached the start of the leader epoch",
        apply=_joins_before_the_epoch,
        story="a_follower_comes_back_to_a_new_leader",
    ),
    Mutant(
        name="commits-by-itself",
        rules="S15",
        breaks="the high watermark is the end of the leader's log",
        apply=_commits_by_itself,
        story="the_last_of_the_isr_goes_on",
    ),
    Mutant(
        name="truncates-to-high-watermark",
        rules="S15",
        breaks="a follower truncates to its high watermark",
        apply=_truncates_to_the_high_watermark,
        story="a_tail_diverges",
    ),
    Mutant(
        name="does-not-truncate",
        rules="S15",
        breaks="logs take every leader epoch to end where they do: nothing is ever truncated",
        apply=_does_not_truncate,
        story="a_tail_diverges",
    ),
    Mutant(
        name="no-fetch-fencing",
        rules="S15",
        breaks="a leader answers fetches of followers whatever leader epoch they carry",
        apply=_fetches_of_any_epoch,
        story="a_fetch_is_late",
    ),
    Mutant(
        name="cut-off-leader-serves",
        rules="S8",
        breaks="a leader that is cut off from store, controller and followers goes on to serve clients",
        apply=_believes_itself,
        story="a_leader_is_cut_off",
    ),
    Mutant(
        name="leads-again",
        rules="S11, T3",
        breaks="a broker takes leadership up in a leader epoch that its log knows already",
        apply=_leads_again,
        story="a_leader_bounces_unseen",
        beside=(leads_on_after_a_bounce,),
        seen_as="S11",
    ),
    Mutant(
        name="leads-with-another-log",
        rules="S10",
        breaks="a broker takes leadership up though the node means another log",
        apply=_leads_with_another_log,
        story="a_follower_loses_power",
        beside=(any_log,),
        seen_as="S10: broker",
    ),
    Mutant(
        name="epoch-not-recorded",
        rules="S11",
        breaks="a leader does not write down the leader epoch that it begins",
        apply=_leads_without_writing_it_down,
        story="a_new_leader_bounces_unseen",
        beside=(leads_on_after_a_bounce,),
        seen_as="S11",
    ),
    Mutant(
        name="isr-not-reported",
        rules="S16",
        breaks="a leader does not report ISR changes to the controller",
        apply=_reports_no_isr,
        story="an_isr_shrinks_and_grows",
    ),
)
"""Those of this module."""
