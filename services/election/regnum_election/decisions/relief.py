"""When a leader that lives is relieved because its followers cannot fetch from it (safety rules S9 and S10). Pure.

Goals: a leader that is cut off only from its followers is replaced before it shrinks its ISR to itself and refuses
writes, and where it follows others acks=all does not wait for it until the lag limit; nothing that was acknowledged to
acks=all is lost; no process alone can move leadership.

Constraints: the leader lives, so nobody may be elected whom its ISR does not name. Followers may be mistaken, slow, or
lie; so may a leader. What the controller knows of the ISR may be behind what the leader wrote.

Algorithm: a follower counts when it says that it gets no answer from the leader, and the leader says that it hears
no fetch of that follower; both speak for their present registrations. A partition is handed over as in a controlled
shutdown when these followers are all members of its ISR that are live, besides the leader, and at least
min.insync.replicas of them may lead. The ISR is the one of the version that the write names. Once in RELIEF_INTERVAL_S
for a partition at most: two brokers that take turns at being cut off do not pass it to and fro.
Where a follower does not count for the leader's relief, it leaves the ISR if it is *isolated* and min.insync.replicas
members stay: no other broker hears fetches of it, and between it and each of them one misses answers of the other (it
is the one that is cut off, not the leader). The second part is needed: a broker that leads nothing hears no fetches
either. A single link that is cut changes nothing: the lag limit is for that.

Example: ISR [1, 2, 3], leader 1, min.insync 2. 2 and 3 hear nothing from 1, and 1 hears nothing from them: leader 2,
ISR [2, 3]. Had 3 been fenced before, 2 alone would not be enough, and 1 stays. Another partition has ISR [3, 2, 1] and
leader 3: its ISR becomes [3, 2].
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from regnum_model.ids import BrokerId
from regnum_model.nodes import LeaderAndIsr

from regnum_election.decisions.leadership import Decision, Refusal, Surroundings, hand_over

RELIEF_INTERVAL_S: Final = 60.0
"""A partition is taken from a leader that lives once in so long at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContacts:
    """What a broker says of fetches between it and others."""

    unreachable_leaders: frozenset[BrokerId] = frozenset()
    """Brokers from which it follows partitions and gets no answer."""
    silent_followers: frozenset[BrokerId] = frozenset()
    """Brokers that fetch nothing from it, be it that they have nothing to fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """Followers that cannot fetch from one leader, as both sides say."""

    followers: frozenset[BrokerId]
    """All of them."""
    isolated: frozenset[BrokerId]
    """Those that nothing passes to or from."""


def cut_leaders(said: Mapping[BrokerId, FetchContacts]) -> dict[BrokerId, CutOff]:
    """Brokers from which others cannot fetch, where both sides say so.

    Args:
        said: what each registered broker that holds a lifeline says.
    """
    cut: dict[BrokerId, set[BrokerId]] = {}
    isolated: set[BrokerId] = set()
    for follower, contacts in said.items():
        leaders = [id for id in contacts.unreachable_leaders if id in said and follower in said[id].silent_followers]
        for leader in leaders:
            cut.setdefault(leader, set()).add(follower)
        # Few brokers are cut off, and of those few are cut off from the first other one as well.
        if leaders and all(
            _nothing_passes(follower, contacts, id, other) for id, other in said.items() if id != follower
        ):
            isolated.add(follower)
    return {
        leader: CutOff(followers=frozenset(followers), isolated=frozenset(followers & isolated))
        for leader, followers in cut.items()
    }


def _nothing_passes(id: BrokerId, contacts: FetchContacts, other_id: BrokerId, other: FetchContacts) -> bool:
    misses_answers = other_id in contacts.unreachable_leaders or id in other.unreachable_leaders
    return misses_answers and id in other.silent_followers


def relieve(
    state: LeaderAndIsr,
    replicas: Sequence[BrokerId],
    surroundings: Surroundings,
    *,
    leader: BrokerId,
    cut_off: CutOff,
    min_insync: int,
) -> Decision:
    """Hand a partition over from a leader from which its followers cannot fetch, or take such followers out.

    Args:
        state: what the node holds.
        replicas: assignment.
        surroundings: live brokers and the reign.
        leader: the leader in question.
        cut_off: followers that cannot fetch from it.
        min_insync: effective min.insync.replicas.
    """
    if state.leader != leader or not surroundings.is_intact(leader, state.members):
        return Refusal.NOTHING_TO_CHANGE
    others = {id for id in state.isr if id != leader and id in surroundings.brokers}
    fit = [id for id in others - surroundings.leaving if surroundings.is_intact(id, state.members)]
    if others <= cut_off.followers and len(fit) >= min_insync:
        leaving: AbstractSet[BrokerId] = {leader}
    else:
        leaving = others & cut_off.isolated
        if not leaving or 1 + len(set(fit) - leaving) < min_insync:
            return Refusal.FOLLOWERS_DISAGREE
    around = replace(surroundings, leaving=frozenset(surroundings.leaving | leaving))
    return hand_over(state, replicas, around, min_insync=min_insync)
