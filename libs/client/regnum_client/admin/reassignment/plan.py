"""Which partitions have to move so that some brokers share them evenly. Pure.

Goals: every broker gets as many replicas as every other one, or one more; among all such plans, one that moves the
fewest replicas; with racks, the replicas of a partition stand on as many racks as they can. Preferred leaders are
spread evenly as well, which moves nothing.

Constraints: a broker has no partition twice; the number of replicas of a partition stays. Racks count only where every
broker has one, and go before evenness where both cannot be had.

Algorithm: what may stay stays (replicas on other brokers go, and those that crowd a rack). What lacks is put where the
fewest are. Then, as long as one broker has two more than another, a replica goes from the one to the other: directly
where some partition allows it, else along the cheapest chain of brokers, each of which gives one on and takes one.
A replica that has been moved already moves on for nothing, and one that goes back to where it was earns a move; so the
chain is found by Bellman and Ford. Leaders are then evened out along chains in the same way, by the order of replicas.

Example: (1, 2), (1, 2), (1, 2) on brokers 1, 2, 3: one replica of 1 and one of 2 go to 3; two moves, two replicas each.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final


class PlanError(ValueError):
    """No plan can do what is asked for; the message says why, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """One partition that is to have other replicas, or the same in another order."""

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    before: tuple[int, ...]
    """Brokers that have it, the preferred leader first."""
    after: tuple[int, ...]
    """Brokers that are to have it."""

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that it goes to."""
        return tuple(id for id in self.after if id not in self.before)


Place = tuple[str, int]
"""Topic and partition."""

_Chain = list[tuple[int, Place, int]]

GIVERS_COMPARED: Final = 16
"""Brokers with equally many replicas of which the one that gives at the least cost is looked for."""


def even_plan(partitions: Mapping[Place, Sequence[int]], brokers: Mapping[int, str | None]) -> tuple[PlannedMove, ...]:
    """Moves after which these brokers, and no others, share these partitions evenly.

    Args:
        partitions: replicas of each, the preferred leader first.
        brokers: rack of each broker that is to have replicas; None for no rack.

    Raises:
        PlanError: a partition has more replicas than there are brokers.
    """
    widest = max((len(replicas) for replicas in partitions.values()), default=0)
    if widest > len(brokers):
        raise PlanError(f"a partition has {widest} replicas and {len(brokers)} brokers are named; name more brokers")
    board = _Board(partitions, brokers)
    board.fill()
    board.even_out()
    return _moves(partitions, board.orders())


def drain_plan(
    partitions: Mapping[Place, Sequence[int]], brokers: Mapping[int, str | None], *, broker: int
) -> tuple[PlannedMove, ...]:
    """Moves after which one broker has nothing, and nothing else has moved.

    Args:
        partitions: replicas of every partition of the cluster, the preferred leader first.
        brokers: rack of each live broker.
        broker: the broker to empty.

    Raises:
        PlanError: a partition has a replica on every other live broker already.
    """
    usable = {id: rack for id, rack in brokers.items() if id != broker}
    racked = bool(usable) and all(rack is not None for rack in usable.values())
    loads = Counter(id for replicas in partitions.values() for id in replicas if id in usable)
    led = Counter(replicas[0] for replicas in partitions.values() if replicas and replicas[0] in usable)
    after: dict[Place, tuple[int, ...]] = {}
    for place in sorted(place for place, replicas in partitions.items() if broker in replicas):
        replicas = tuple(partitions[place])
        free = [id for id in usable if id not in replicas]
        if not free:
            raise PlanError(
                f"every live broker has a replica of {place[0]}-{place[1]} already; start another broker, or give the "
                "partition fewer replicas"
            )
        racks = {usable[id] for id in replicas if id in usable} if racked else set()
        heir = min(free, key=lambda id: (usable[id] in racks, loads[id], id))
        loads[heir] += 1
        moved = tuple(heir if id == broker else id for id in replicas)
        if replicas[0] == broker:
            # Leading falls to whoever leads least among those that have it, so that not one of them gets all.
            first = min((id for id in moved if id in usable), key=lambda id: (led[id], moved.index(id)))
            led[first] += 1
            moved = (first, *(id for id in moved if id != first))
        after[place] = moved
    return _moves(partitions, after)


def _moves(
    partitions: Mapping[Place, Sequence[int]], after: Mapping[Place, tuple[int, ...]]
) -> tuple[PlannedMove, ...]:
    return tuple(
        PlannedMove(topic=place[0], partition=place[1], before=tuple(partitions[place]), after=after[place])
        for place in sorted(after)
        if tuple(partitions[place]) != after[place]
    )


class _Board:
    """Who has what, while it is moved about."""

    def __init__(self, partitions: Mapping[Place, Sequence[int]], brokers: Mapping[int, str | None]) -> None:
        self.before = {place: tuple(replicas) for place, replicas in partitions.items()}
        self.brokers = sorted(brokers)
        racked = all(rack is not None for rack in brokers.values())
        self.racks: Mapping[int, str | None] = brokers if racked else {}
        self.sizes = Counter(brokers.values()) if racked else Counter()
        self.has: dict[Place, list[int]] = {}
        self.on: dict[int, dict[Place, None]] = {id: {} for id in self.brokers}
        self._caps: dict[int, int] = {}
        self._given: Counter[int] = Counter()
        """Partitions of each broker that it did not have before."""
        self._offers: dict[tuple[int, int], deque[Place]] = {}
        """What one broker may still be able to give to another one directly. What it cannot is left out until there is
        room again: looked at for each move, 20,000 partitions took 49 s of processor time instead of one."""
        self._steps: dict[int, dict[int, tuple[int, Place]]] = {}
        """Cheapest way for each broker to give a replica to another one; forgotten when it may have changed."""

    @property
    def load(self) -> dict[int, int]:
        """Replicas of each broker."""
        return {id: len(places) for id, places in self.on.items()}

    def rack_cap(self, count: int) -> int:
        """Replicas of a partition with so many that a rack may have."""
        if not self.racks:
            return count
        cap = self._caps.get(count)
        if cap is None:
            cap = next(n for n in range(1, count + 1) if sum(min(n, size) for size in self.sizes.values()) >= count)
            self._caps[count] = cap
        return cap

    def put(self, place: Place, id: int) -> None:
        """A broker gets a partition."""
        self.has[place].append(id)
        self.on[id][place] = None
        self._given[id] += id not in self.before[place]

    def room(self, place: Place, id: int, *, instead_of: int | None = None) -> bool:
        """Whether a broker may get a partition, perhaps in place of another one."""
        if id in self.has[place]:
            return False
        if not self.racks:
            return True
        rack = self.racks[id]
        others = sum(self.racks[other] == rack for other in self.has[place] if other != instead_of)
        return others < self.rack_cap(len(self.before[place]))

    def fill(self) -> None:
        """What may stay stays; what lacks goes where the fewest are."""
        for place, replicas in self.before.items():
            self.has[place] = []
            for id in replicas:
                if id in self.on and self.room(place, id):
                    self.put(place, id)
        load = self.load
        for place in sorted(self.before):
            while len(self.has[place]) < len(self.before[place]):
                free = [id for id in self.brokers if self.room(place, id)]
                chosen = min(free, key=lambda id: (id not in self.before[place], load[id], id))
                self.put(place, chosen)
                load[chosen] += 1

    def even_out(self) -> None:
        """Until no broker has two more than another one that it could give to."""
        stuck: set[int] = set()
        while True:
            load = self.load
            givers = sorted((id for id in self.brokers if id not in stuck), key=lambda id: (-load[id], id))
            lowest = min(load.values())
            if not givers or load[givers[0]] - lowest < 2:
                return
            most = load[givers[0]]
            takers = sorted((id for id in self.brokers if load[id] <= most - 2), key=lambda id: (load[id], id))
            # Of those that have the most not all need to give: who has been given something gives it for nothing.
            given = [id for id in givers if load[id] == most and self._was_given(id)][:GIVERS_COMPARED]
            if not given and self._give_directly(givers[0], takers):
                continue
            found = {giver: self._chain(giver, takers, load) for giver in given or givers[:1]}
            stuck.update(giver for giver, way in found.items() if way is None)
            if ways := [way for way in found.values() if way is not None]:
                _, chain = min(ways, key=itemgetter(0))
                for source, place, taker in chain:
                    self._shift(place, source, taker)

    def _was_given(self, id: int) -> bool:
        """Whether it has a partition that it did not have before."""
        return self._given[id] > 0

    def _give_directly(self, giver: int, takers: Sequence[int]) -> bool:
        """Give one of its first replicas to one of the emptiest, where no chain can be cheaper."""
        places = self.on[giver]
        if self._was_given(giver):
            return False
        for taker in takers:
            offers = self._offers.get((giver, taker))
            if offers is None:
                offers = self._offers[giver, taker] = deque(places)
            while offers:
                place = offers.popleft()
                if place in places and self.room(place, taker, instead_of=giver):
                    self._shift(place, giver, taker)
                    return True
        return False

    def _cost(self, place: Place, source: int, taker: int) -> int:
        before = self.before[place]
        return (taker not in before) - (source not in before)

    def _steps_from(self, source: int) -> dict[int, tuple[int, Place]]:
        known = self._steps.get(source)
        if known is None:
            known = self._steps[source] = {}
            for place in self.on[source]:
                for taker in self.brokers:
                    if taker != source and self.room(place, taker, instead_of=source):
                        cost = self._cost(place, source, taker)
                        if taker not in known or cost < known[taker][0]:
                            known[taker] = (cost, place)
        return known

    def _chain(self, giver: int, takers: Sequence[int], load: Mapping[int, int]) -> "tuple[int, _Chain] | None":
        """The cheapest way from one broker to any of others: how many moves it adds, and who gives what to whom."""
        cost: dict[int, int] = {giver: 0}
        via: dict[int, tuple[int, Place]] = {}
        waiting = deque([giver])
        rounds = 0
        while waiting and rounds < len(self.brokers) ** 2:
            rounds += 1
            source = waiting.popleft()
            for taker, (step, place) in self._steps_from(source).items():
                if taker != giver and cost[source] + step < cost.get(taker, 1 << 30):
                    cost[taker] = cost[source] + step
                    via[taker] = (source, place)
                    if taker not in waiting:
                        waiting.append(taker)
        reached = [id for id in takers if id in via]
        if not reached:
            return None
        taker = min(reached, key=lambda id: (cost[id], load[id], id))
        moves = cost[taker]
        chain: list[tuple[int, Place, int]] = []
        used: set[Place] = set()
        while taker != giver:
            source, place = via[taker]
            if place in used or len(chain) > len(self.brokers):
                # A partition that would move twice: what was found no longer holds after its first move.
                return None
            used.add(place)
            chain.append((source, place, taker))
            taker = source
        return moves, chain

    def _shift(self, place: Place, source: int, taker: int) -> None:
        for id in (*self.has[place], taker):
            self._steps.pop(id, None)
        del self.on[source][place]
        self.has[place].remove(source)
        self._given[source] -= source not in self.before[place]
        self.put(place, taker)
        self._offer_again(place, source, taker)

    def _offer_again(self, place: Place, source: int, taker: int) -> None:
        """There is room for a partition where it was, or in that rack; and one more has it to give."""
        roomy = [id for id in self.brokers if id == source or (self.racks and self.racks[id] == self.racks[source])]
        pairs = [*((giver, id) for giver in self.has[place] for id in roomy), *((taker, id) for id in self.brokers)]
        for pair in dict.fromkeys(pairs):
            if (offers := self._offers.get(pair)) is not None:
                offers.append(place)

    def orders(self) -> dict[Place, tuple[int, ...]]:
        """Replicas in order: the preferred leader first, then those that stay, as they stood."""
        leads = {place: self._ranked(place)[0] for place in self.has}
        led: dict[int, dict[Place, None]] = {id: {} for id in self.brokers}
        for place, id in leads.items():
            led[id][place] = None
        even_leaders(leads, led, self.has)
        return {place: (leads[place], *(id for id in self._ranked(place) if id != leads[place])) for place in self.has}

    def _ranked(self, place: Place) -> list[int]:
        before = self.before[place]
        stay = [id for id in before if id in self.has[place]]
        return [*stay, *sorted(id for id in self.has[place] if id not in before)]


def even_leaders(
    leads: dict[Place, int], led: Mapping[int, dict[Place, None]], has: Mapping[Place, Iterable[int]]
) -> None:
    """Spread leaders evenly over those that may lead; ``leads`` and ``led`` are changed in place."""
    stuck: set[int] = set()
    while True:
        givers = [id for id in led if id not in stuck]
        if not givers:
            return
        giver = max(givers, key=lambda id: (len(led[id]), -id))
        if len(led[giver]) - min(map(len, led.values())) < 2:
            return
        chain = _leader_chain(giver, led, has)
        if not chain:
            stuck.add(giver)
        for source, place, taker in chain:
            del led[source][place]
            led[taker][place] = None
            leads[place] = taker


def _leader_chain(
    giver: int, led: Mapping[int, dict[Place, None]], has: Mapping[Place, Iterable[int]]
) -> list[tuple[int, Place, int]]:
    """The shortest way to one that leads two fewer: who gives which partition to whom; empty: there is none."""
    via: dict[int, tuple[int, Place]] = {}
    waiting = deque([giver])
    while waiting:
        source = waiting.popleft()
        for place, taker in ((one, id) for one in led[source] for id in has[one]):
            if taker == giver or taker in via:
                continue
            via[taker] = (source, place)
            waiting.append(taker)
            if len(led[taker]) <= len(led[giver]) - 2:
                chain: list[tuple[int, Place, int]] = []
                last = taker
                while last != giver:
                    before, given = via[last]
                    chain.append((before, given, last))
                    last = before
                return chain
    return []
