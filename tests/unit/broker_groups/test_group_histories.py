"""Random histories of one group: joins, syncs, heartbeats, commits, departures, silence, callers that give up.

After every step: generations never go back and have one leader each; an assignment goes to members of its generation
only; what is told of a generation is told after it was persisted; a call that is held has an end in sight.
"""

import itertools
from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from regnum_broker.groups.decisions.joining import join
from regnum_broker.groups.decisions.membership import (
    expire,
    give_up,
    heartbeat,
    leave,
    next_deadline_s,
    resumed,
    soonest_s,
    sync,
)
from regnum_broker.groups.decisions.offsets import may_commit
from regnum_broker.groups.decisions.state import (
    Again,
    Group,
    GroupError,
    GroupLimits,
    GroupState,
    Identity,
    Joined,
    JoinRequest,
    Left,
    Member,
    Persist,
    Refusal,
    Reply,
    Step,
    Synced,
    SyncRequest,
)
from regnum_broker.groups.recorded.records import group_record

LIMITS = GroupLimits(members_max=8, initial_rebalance_delay_s=3.0)
LONGEST_S = 60.0
"""No time-out of these members is longer."""
SLOTS = st.integers(0, 5)


class Client:
    """One process that would be a member."""

    def __init__(self, instance_id: str) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1


class Groups(RuleBasedStateMachine):
    """One group and six clients, two of them static; two more processes share the static names."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(group_id="g")
        self.persisted = Group(group_id="g")
        self.now_s = 1_000.0
        self.calls = itertools.count(1)
        self.ids = itertools.count(1)
        self.held: dict[int, tuple[Client, str, float]] = {}
        """Held calls: whose, under which member id, since when."""
        self.clients = [Client(name) for name in ("", "", "", "", "s1", "s2")]
        self.leaders: dict[int, str] = {}
        self.told: dict[str, int] = {}
        self.look_s: float | None = None
        """When a shard would look at the group next."""

    def take(self, step: Step, *, caller: tuple[int, Client, str] | None = None) -> None:
        before, self.group = self.group, step.group
        self.bring_forward(soonest_s(step.group, now_s=self.now_s, session_s_min=LIMITS.session_timeout_s_min))
        assert self.group.generation >= before.generation, "a generation went back"
        if caller is not None:
            call, client, member_id = caller
            self.held[call] = (client, member_id, self.now_s)
        for effect in step.effects:
            if isinstance(effect, Persist):
                self.persisted = step.group
            else:
                self.replied(effect)

    def bring_forward(self, moment_s: float | None) -> None:
        if moment_s is not None:
            self.look_s = moment_s if self.look_s is None else min(self.look_s, moment_s)

    def replied(self, reply: Reply) -> None:
        client, _, _ = self.held.pop(reply.call)
        match reply.answer:
            case Joined() as joined:
                assert self.persisted.generation >= joined.generation, "told before it was on record"
                assert self.leaders.setdefault(joined.generation, joined.leader) == joined.leader or (
                    self.group.members[joined.leader].instance_id
                ), "two leaders in a generation"
                assert joined.member_id in self.group.members
                assert joined.generation >= self.told.get(joined.member_id, -1)
                self.told[joined.member_id] = joined.generation
                assert bool(joined.members) == (joined.member_id == joined.leader)
                client.member_id, client.generation = joined.member_id, joined.generation
            case Synced() as synced:
                if synced.assignment:
                    generation, owner = synced.assignment.decode().split("/")
                    assert int(generation) == self.group.generation, "an assignment of another generation"
                    # A static member that came back has the assignment of its earlier id.
                    assert owner == client.member_id or client.instance_id, "somebody else's assignment"
            case Again(member_id=given):
                client.member_id = given
            case Refusal(error=GroupError.UNKNOWN_MEMBER_ID | GroupError.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1
            case _:
                pass

    def identity(self, client: Client) -> Identity:
        return Identity(member_id=client.member_id, instance_id=client.instance_id, generation=client.generation)

    @rule(slot=SLOTS, session_s=st.sampled_from([6.0, 30.0]), kind=st.sampled_from(["range", "range,sticky", "none"]))
    def joins(self, slot: int, session_s: float, kind: str) -> None:
        client, call = self.clients[slot], next(self.calls)
        request = JoinRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            session_timeout_s=session_s,
            rebalance_timeout_s=20.0 if slot % 2 else LONGEST_S,
            protocol_type="consumer",
            protocols=tuple((name, b"m%d" % slot) for name in kind.split(",")),
            new_member_id=f"m{next(self.ids)}",
        )
        member_id = client.member_id or request.new_member_id
        step = join(self.group, request, call=call, now_s=self.now_s, now_ms=round(self.now_s * 1000), limits=LIMITS)
        self.take(step, caller=(call, client, member_id))

    @rule(slot=SLOTS)
    def restarts(self, slot: int) -> None:
        self.clients[slot].member_id, self.clients[slot].generation = "", -1

    @rule(slot=SLOTS, stale=st.booleans())
    def syncs(self, slot: int, stale: bool) -> None:
        client, call = self.clients[slot], next(self.calls)
        identity = self.identity(client)
        if stale:
            identity = replace(identity, generation=identity.generation - 1)
        assignments = ()
        if client.member_id and client.member_id == self.group.leader:
            everybody = (*self.group.members, "ghost")
            assignments = tuple((id, f"{self.group.generation}/{id}".encode()) for id in everybody)
        step = sync(
            self.group,
            SyncRequest(identity=identity, assignments=assignments),
            call=call,
            now_s=self.now_s,
            limits=LIMITS,
        )
        self.take(step, caller=(call, client, client.member_id))

    @rule(slot=SLOTS)
    def beats(self, slot: int) -> None:
        client, call = self.clients[slot], next(self.calls)
        self.take(
            heartbeat(self.group, self.identity(client), call=call, now_s=self.now_s),
            caller=(call, client, client.member_id),
        )
        assert call not in self.held

    @rule(slot=SLOTS, behind=st.integers(0, 2))
    def commits(self, slot: int, behind: int) -> None:
        client = self.clients[slot]
        identity = replace(self.identity(client), generation=client.generation - behind)
        found = may_commit(self.group, identity)
        if isinstance(found, Member):
            assert identity.generation == self.group.generation, "a zombie's commit was taken"
            assert found.member_id == client.member_id
            assert self.group.state in {GroupState.STABLE, GroupState.PREPARING_REBALANCE}
        elif found is None:
            assert self.group.state is GroupState.EMPTY

    @rule(slot=SLOTS)
    def leaves(self, slot: int) -> None:
        client, call = self.clients[slot], next(self.calls)
        named = Identity(member_id=client.member_id, instance_id=client.instance_id)
        step = leave(self.group, [named], call=call, now_s=self.now_s, now_ms=round(self.now_s * 1000))
        self.take(step, caller=(call, client, client.member_id))
        assert call not in self.held
        assert client.member_id not in self.group.members
        client.member_id, client.generation = "", -1

    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        if self.held:
            call = data.draw(st.sampled_from(sorted(self.held)))
            self.take(give_up(self.group, self.held[call][1], call, now_s=self.now_s))
            assert call not in self.held, "who gives up is answered"

    @rule(seconds=st.sampled_from([0.5, 3.0, 7.0, 31.0, LONGEST_S]))
    def time_passes(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        for _ in range(200):
            if self.look_s is None or self.look_s > until_s:
                break
            self.now_s = max(self.now_s, self.look_s)
            self.take(expire(self.group, now_s=self.now_s, now_ms=round(self.now_s * 1000)))
            self.look_s = next_deadline_s(self.group)
        else:
            raise AssertionError("deadlines do not end")
        self.now_s = until_s

    @rule()
    def coordinator_moves(self) -> None:
        """The next one has what was persisted; held calls end, and members begin a session anew."""
        self.held.clear()
        persisted = self.persisted
        members = {id: replace(one, call=None, joined=False) for id, one in persisted.members.items()}
        bare = replace(
            persisted,
            pending=persisted.pending.__class__(),
            joined=0,
            rebalance_deadline_s=None,
            members=persisted.members.__class__(members),
        )
        self.group = resumed(bare, now_s=self.now_s)
        self.look_s = next_deadline_s(self.group)

    @invariant()
    def counts_and_names_fit(self) -> None:
        group = self.group
        assert group.joined == sum(one.joined for one in group.members.values())
        assert len(group.members) + len(group.pending) <= LIMITS.members_max
        assert dict(group.instances) == {one.instance_id: id for id, one in group.members.items() if one.instance_id}
        assert not set(group.pending) & set(group.members)
        if group.state is GroupState.EMPTY:
            assert not group.members
        if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            assert group.leader in group.members, "nobody leads"
            assert all(group.protocol in dict(one.protocols) for one in group.members.values())
        offers = Counter(name for one in group.members.values() for name, _ in one.protocols)
        assert dict(group.offered) == dict(offers)
        assert group.brought_bytes == sum(one.brought_bytes for one in group.members.values())
        assert group.assigned_bytes == sum(len(one.assignment) for one in group.members.values())
        assert len(group_record(group).value or b"") <= 4_096 + group.brought_bytes + group.assigned_bytes
        held = {one.call for one in group.members.values() if one.call is not None}
        assert held == set(self.held), "a held call is a member's"

    @invariant()
    def a_shard_looks_in_time(self) -> None:
        deadline_s = next_deadline_s(self.group)
        assert deadline_s is None or (self.look_s is not None and self.look_s <= deadline_s)

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        if self.held:
            deadline_s = next_deadline_s(self.group)
            assert deadline_s is not None
            assert deadline_s <= self.now_s + LONGEST_S
        for _, _, since_s in self.held.values():
            # Preparing, and then the leader's assignment; each at most as long as the slowest bears, once more where
            # nobody but absent static members had a place.
            assert self.now_s - since_s <= 4 * LONGEST_S, "waits for ever"


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestGroups = Groups.TestCase


def test_a_departure_answers_for_each_member() -> None:
    step = leave(Group(group_id="g"), [Identity(member_id="m1")], call=1, now_s=0.0, now_ms=0)
    (reply,) = step.effects
    assert isinstance(reply, Reply)
    assert isinstance(reply.answer, Left)
    (outcome,) = reply.answer.outcomes
    assert outcome is not None
    assert outcome.error is GroupError.UNKNOWN_MEMBER_ID
