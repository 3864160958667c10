"""Carries batches to the leaders of their partitions and sees each to its end.

Goals: what ``lane`` decides, with few calls and short outages.

Algorithm: one task turns whenever something happened: it gives up what is too old, and for every leader that may take
another call gathers the next batch of each of its partitions into one call; ``departures`` knows which may go. Large
batches go up to five at a time, and grow while they cannot (a call that takes long, because replicas are far away,
makes room for others); a smaller one stays open in the ``accumulator``, and takes records, until nothing of its
partition is on its way. A partition whose leader failed goes on when metadata, asked for
after the failure, shows another term; to the same term it is sent again after a pause that grows with the trouble; one
batch alone to a leader that could not be reached.
A call without an answer for half a second makes the sender look again, with other brokers than the one that is
silent: if a partition of it has another leader by now the call is abandoned (the leader is frozen or cut off, not
slow) and its batches go on with the same numbers. Without numbers it takes all partitions to have moved.
"""

import asyncio
import random
from typing import Final, NamedTuple

from regnum.broker.v1.log_pb2 import Acks, ProduceResult
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError, reason_of
from regnum_telemetry import propagation, tracing

from regnum_client.cluster.connections import Connections
from regnum_client.cluster.hints import hints_of
from regnum_client.cluster.leaderless import Leaderless
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.producer.batches.accumulator import Accumulator
from regnum_client.producer.batches.lane import Batch
from regnum_client.producer.batches.verdicts import Fate, judge
from regnum_client.producer.calls import CallsUnderWay, Failpoints, Item, ProduceCall, ProduceCalls
from regnum_client.producer.departures import Alarms, Departures, Place
from regnum_client.producer.given_up import GivenUp
from regnum_client.producer.identities import Identities
from regnum_client.producer.outage_watch import Acknowledgement, OutageWatch, Trouble
from regnum_client.producer.outcomes import Appended, Outcomes, Receipt
from regnum_client.producer.parting import parts_of
from regnum_client.producer.route import Route, Routes, longest_in_trouble
from regnum_client.producer.unreachable import UnreachableLeaders
from regnum_client.records import TopicPartition
from regnum_client.tasks import Tasks

DOUBTED_S: Final = 1.0
"""When a leader has refused for so long, other brokers are asked who leads."""
EXPIRE_EVERY_S: Final = 0.1
"""How often batches are looked at whose time may be up."""
IDLE_S: Final = 60.0
"""The task turns at least so often."""


class Sender:
    """The task that sends. ``offer`` gives it batches; their receipts end through ``Outcomes``."""

    def __init__(
        self,
        connections: Connections,
        metadata: Metadata,
        outcomes: Outcomes,
        accumulator: Accumulator[Receipt],
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        acks: Acks.ValueType,
        idempotent: bool,
        in_flight_max: int,
        request_timeout_s: float,
        outages: OutageWatch,
        tasks: Tasks,
        failpoints: Failpoints | None = None,
    ) -> None:
        self._tasks: Final = tasks
        header = RequestHeader(client_id=client_id)
        self._metadata: Final = metadata
        self._outcomes: Final = outcomes
        self._accumulator: Final = accumulator
        self._clock: Final = clock
        self._chance: Final = chance
        self._idempotent: Final = idempotent
        self._in_flight_max: Final = in_flight_max
        self._outages: Final = outages
        self._departures: Final = Departures[Route]()
        """Routes with batches to send."""
        self._given_up: Final = GivenUp(self._departures, accumulator, outcomes)
        self._leaderless: Final = Leaderless()
        self._deadlines: Final = Alarms()
        """When the time of their first batches is up, or before."""
        self._calls: Final = CallsUnderWay()
        self._unreachable: Final = UnreachableLeaders()
        self._expire_at_s = float("-inf")
        self._produce_calls: Final = ProduceCalls(
            connections,
            header=header,
            acks=acks,
            request_timeout_s=request_timeout_s,
            outages=outages,
            clock=clock,
            chance=chance,
            tasks=tasks,
            failpoints=failpoints,
        )
        self.throttles: Final = self._produce_calls.throttles
        self._identities: Final = Identities(
            connections, metadata, outcomes, clock=clock, chance=chance, header=header, tasks=tasks
        )
        busy = (accumulator, self._departures, self._deadlines)
        self.paths: Final = Routes(
            metadata.keep, self._identities.has_another, busy, forget=outages.forget, idempotent=idempotent
        )
        self._routes: Final = self.paths.known

    def take_in(self, now_s: float) -> None:
        """Look what the accumulator has: closed batches, and open ones that may be taken."""
        for partition in self._accumulator.become_ready(now_s):
            self._enter(partition, self.paths.take(partition, now_s))
        for partition, batch in self._accumulator.take_closed():
            route = self.paths.take(partition, now_s)
            route.lane.add(batch)
            self._enter(partition, route)

    def turn(self) -> float:
        """Send what may be sent now. Returns in how many seconds to turn again if nothing happens before."""
        now_s = self._clock.monotonic()
        if now_s >= self._expire_at_s:
            self._expire(now_s)
        view = self._metadata.view
        self._look_at_slow_calls(now_s, view)
        again_s = now_s + (EXPIRE_EVERY_S if self._departures else IDLE_S)
        gathered, paused_s = self._gather(view, now_s)
        for leader, items in gathered.items():
            self._send(leader, items, view, now_s)
        if gathered:
            return 0.0
        return max(0.0, min(again_s, paused_s, self._calls.next_look_s) - now_s)

    async def close(self) -> None:
        """End all calls. What is not acknowledged is left to ``Outcomes.abandon``."""
        await self._tasks.end(*(under_way.task for under_way in self._calls if under_way.task is not None))
        await self._produce_calls.close()
        await self._identities.close()

    def _gather(self, view: ClusterView, now_s: float) -> tuple[dict[BrokerId, list[Item]], float]:
        """One call's worth of batches for each leader that may take one, and when the first pause ends."""
        refusal = self._identities.take_refusal()
        if refusal is not None:
            self._given_up.unnumbered(self._routes, refusal)
        departures = self._departures
        for partition, route in departures.look_at(view, now_s, identity=not self._identities.under_way):
            term = self._term(partition, route, view, now_s, lines_up=True)
            if term is not None:
                departures.line_up(partition, route, term.leader)
        if departures.lack_picture:
            self._metadata.request()
        if now_s >= self._leaderless.next_s:
            topics = self._leaderless.take(now_s, still=departures.lacks_news, chance=self._chance.random())
            self._metadata.ask_about(topics)
        gathered: dict[BrokerId, list[Item]] = {}
        paused_s = min(departures.next_pause_s, self._leaderless.next_s)
        for leader, line in departures.lines():
            items, free_s = self._gather_for(leader, line, view, now_s)
            paused_s = min(paused_s, free_s)
            if items:
                gathered[leader] = items
        return gathered, paused_s

    def _gather_for(
        self, leader: BrokerId, line: Place[Route], view: ClusterView, now_s: float
    ) -> tuple[list[Item], float]:
        """The same for one leader; infinity where no pause is waited for."""
        items: list[Item] = []
        again: list[tuple[TopicPartition, Route]] = []
        size_bytes = 0
        free_s = float("inf")
        while line:
            free_s = self._free_from_s(leader, view, size_bytes, now_s)
            if now_s < free_s:
                break
            partition, route = next(iter(line.items()))
            term = self._term(partition, route, view, now_s)
            if term is None:
                continue
            batch = self._next_batch(partition, route, term)
            if batch is not None:
                items.append(Item(partition, batch, term))
                size_bytes += batch.size_bytes
            if not (route.lane.waiting or self._accumulator.is_large(partition)):
                # An open batch that fills while this one is under way comes back when this one ends.
                self._departures.leave(partition)
                continue
            self._departures.wait_for_answer(partition, route)
            if batch is not None:
                again.append((partition, route))
        for partition, route in again:
            self._departures.line_up(partition, route, leader)
        return items, free_s if now_s < free_s else float("inf")

    def _free_from_s(self, leader: BrokerId, view: ClusterView, gathered_bytes: int, now_s: float) -> float:
        """When a leader takes a batch besides those gathered for it; infinity: when a call to it has ended."""
        full_until_s = self._calls.full_until_s(leader, gathered_bytes, in_flight_max=self._in_flight_max)
        if now_s < full_until_s:
            return full_until_s
        throttled_until_s = self.throttles.until_s(leader)
        out_of_reach_until_s = self._unreachable.pause_until_s(leader, view.incarnation_of(leader))
        if out_of_reach_until_s is None:
            return throttled_until_s
        if gathered_bytes or self._calls.any_to(leader):
            return float("inf")
        return max(out_of_reach_until_s, throttled_until_s)

    def _next_batch(self, partition: TopicPartition, route: Route, term: LeaderTerm) -> Batch[Receipt] | None:
        lane = route.lane
        is_large = self._accumulator.is_large(partition)
        if lane.empty or (is_large and lane.has_room(term, in_flight_max=self._in_flight_max)):
            ready = self._accumulator.take(partition)
            if ready is not None:
                lane.add(ready)
        return lane.next_batch(term, in_flight_max=self._in_flight_max)

    def _term(
        self, partition: TopicPartition, route: Route, view: ClusterView, now_s: float, *, lines_up: bool = False
    ) -> LeaderTerm | None:
        """The leadership to send to; None: not now, and it waits. ``lines_up``: looked at for news of its topic."""
        if view.lacks(partition):
            self._given_up.not_there(partition, route)
            return None
        if route.lane.lacks_identity and not self._identities.give(route):
            self._departures.wait_for_identity(partition, route)
            return None
        term = view.leader_term(*partition)
        route.was_there = route.was_there or term is not None
        if route.trouble.needs_metadata(view, term):
            self._departures.wait_for_picture(partition, route)
            return None
        if term is None:
            self._departures.wait_for_news(partition, route)
            self._leaderless.lacks(partition.topic, now_s)
            return None
        pause_until_s = route.trouble.pause_until_s(term)
        if lines_up and self._outages.enabled:
            self._outages.learned(partition, term, tracing.now_unix_nano(), pauses=now_s < pause_until_s)
        if now_s < pause_until_s:
            self._departures.wait_for_pause(partition, route, pause_until_s)
            return None
        return term

    def _enter(self, partition: TopicPartition, route: Route, *, answered: bool = False) -> None:
        self._departures.enter(partition, route, answered=answered)
        if partition not in self._deadlines:
            self._deadlines.set(partition, self._deadline_s(partition, route))

    def _deadline_s(self, partition: TopicPartition, route: Route) -> float:
        """Of its first batch: later ones were opened later."""
        first = next(route.lane.batches(), None)
        return self._accumulator.deadline_s(partition) if first is None else first.deadline_s

    def _expire(self, now_s: float) -> None:
        self._expire_at_s = now_s + EXPIRE_EVERY_S
        for partition in self._deadlines.take(now_s):
            route = self._routes[partition]
            if not self._has_work(partition, route):
                continue
            expired = route.lane.expire(now_s)
            ready = self._accumulator.take_expired(partition, now_s)
            if ready is not None:
                expired.append(ready)
            for batch in expired:
                if batch.deadline_s <= now_s:
                    self._outcomes.timed_out(partition, batch, last=self._last_answer(partition, route))
                    if batch.identity is not None:
                        route.broken_because = "a batch before it was not acknowledged in time"
                else:
                    self._outcomes.sequence_broken(partition, batch, because=route.broken_because)
            if not self._has_work(partition, route):
                self._departures.leave(partition)
                continue
            # (One that is under way ends by the deadline of its call.)
            self._deadlines.set(partition, max(self._deadline_s(partition, route), self._expire_at_s))
            if expired:
                self._departures.enter(partition, route, answered=True)

    def waits_because(self) -> str:
        """Whose records have waited longest in vain, and the last answer to them; empty: nothing has gone wrong."""
        found = longest_in_trouble(self._routes, self._clock.monotonic(), self._metadata.view, self._accumulator)
        return f"{found.topic}/{found.partition}: {self._last_answer(found, self._routes[found])}" if found else ""

    def _last_answer(self, partition: TopicPartition, route: Route) -> str:
        if self._metadata.view.leader_term(*partition) is None:
            return self._metadata.last_answer or "the partition has no leader"
        return route.trouble.last_answer or self._identities.last_answer or self._metadata.last_answer

    def _has_work(self, partition: TopicPartition, route: Route) -> bool:
        return route.lane.waiting or self._accumulator.is_ready(partition)

    def _send(self, leader: BrokerId, items: list[Item], view: ClusterView, now_s: float) -> None:
        address = view.address_of(leader)
        if address is None:
            # A leader that is not among the live brokers: the next picture will say more.
            error = RegnumError(
                errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE, f"leader {leader} is not among the live brokers"
            )
            self._settle_all(items, error.code, error.message)
            return
        incarnation = view.incarnation_of(leader)
        if self._unreachable.pause_until_s(leader, incarnation) is not None:
            # It feels the way and will fail if the leader is dead: who leads by now is asked beside it and not after.
            self._metadata.request(doubted=address)
        under_way = ProduceCall(leader, incarnation, address, items, sent_s=now_s)
        self._calls.add(under_way)
        under_way.task = self._tasks.start(f"produce-{leader}", self._carry(under_way))

    async def _carry(self, under_way: ProduceCall) -> None:
        items = under_way.items
        try:
            response = await self._produce_calls.produce(under_way)
        except RegnumError as error:
            code = _call_code(error, idempotent=self._idempotent)
            if error.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE:
                self._metadata.suspect(under_way.address)
            if code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE and not under_way.answer.given_up:
                self._unreachable.failed(
                    under_way.leader,
                    under_way.incarnation,
                    now_s=self._clock.monotonic(),
                    chance=self._chance.random(),
                )
            self._settle_all(items, code, error.message)
        else:
            self._unreachable.answered(under_way.leader)
            answered = list(zip(items, response.results, strict=True))
            self._metadata.take_leaders(hints_of((item.partition, item.term, result) for item, result in answered))
            for (item, result), traced in zip(answered, _traces(under_way, answered, self._outages), strict=True):
                self._settle(item, result.error_code, result.error_message, Appended.told(result), traced)
        finally:
            self._calls.ended(under_way)
            self._outcomes.wake()

    def _settle_all(self, items: list[Item], code: Code, message: str) -> None:
        for item in items:
            self._settle(item, code, message, Appended(-1))

    def _settle(
        self, item: Item, code: Code, message: str, appended: Appended, traced: "_Traced | None" = None
    ) -> None:
        route, batch = self._routes[item.partition], item.batch
        verdict = judge(code, idempotent=self._idempotent, went_alone=batch.went_alone)
        parts = parts_of(item.partition, batch, code, accumulator=self._accumulator, outcomes=self._outcomes)
        if verdict.fate in (Fate.REFUSED, Fate.SEQUENCE_BROKEN):
            # The sequence may be mended later, by an answer that says nothing of this.
            route.broken_because = message
        failed = route.lane.settle(batch, verdict, item.term, parts)
        if verdict.fate is Fate.ACKNOWLEDGED:
            route.trouble.succeeded()
            self._outcomes.acknowledged(item.partition, batch, appended)
            if self._outages.enabled:
                trouble = self._outages.recovered(item.partition)
                # Right after the callbacks of the records' futures: the moment that the caller sees.
                told, offset = traced or _Traced(), appended.base_offset
                asyncio.get_running_loop().call_soon(
                    _note_acknowledgement, self._outages, self._clock, item, offset, told, trouble
                )
        elif code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED:
            # The leader is well, and says itself when to come again.
            self._outcomes.batches_throttled += 1
            route.trouble.last_answer = message
        elif code != errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER:
            # (A batch that came too early needs no pause: it waits for the one before it.)
            self._note_trouble(item, route, code, message, refresh=verdict.refresh_metadata)
        if verdict.fate is Fate.REFUSED and batch in failed:
            failed.remove(batch)
            self._outcomes.refused(item.partition, batch, code, message)
        for lost in failed:
            self._outcomes.sequence_broken(item.partition, lost, because=route.broken_because)
        if self._has_work(item.partition, route):
            self._enter(item.partition, route, answered=True)
        else:
            self._departures.leave(item.partition)

    def _note_trouble(self, item: Item, route: Route, code: Code, message: str, *, refresh: bool) -> None:
        now_s = self._clock.monotonic()
        route.trouble.failed(
            item.term,
            message,
            refresh=refresh,
            now_s=now_s,
            chance=self._chance.random(),
            in_office=code != errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
        )
        if refresh or route.trouble.lasted_s(now_s) > DOUBTED_S:
            # A leader that refuses for long may have been deposed without having heard of it.
            self._metadata.request(doubted=self._metadata.view.address_of(item.term.leader))
        if self._outages.enabled:
            self._outages.failed(item.partition, reason_of(code), tracing.now_unix_nano())

    def _look_at_slow_calls(self, now_s: float, view: ClusterView) -> None:
        for under_way in self._calls.slow(now_s):
            self._metadata.request(doubted=under_way.address)
            under_way.abandon_if_moved(view, idempotent=self._idempotent)


class _Traced(NamedTuple):
    """What an answer says of traces, as traceparents; empty: nothing."""

    cause: str = ""
    """What made the leadership."""
    place: str = ""
    """The produce call's own span."""
    send_id: str = ""
    """Id for the span of the call in the trace of the cause."""
    isr_change: str = ""
    """What ended the wait for a replica that was gone."""


_UNTRACED: Final = _Traced()
"""Of an answer that says nothing."""


def _traces(call: ProduceCall, answered: list[tuple[Item, ProduceResult]], outages: OutageWatch) -> list[_Traced]:
    """What an answer says of each partition. It comes when all of it is there: the others waited for the same."""
    if not outages.enabled:
        return [_UNTRACED] * len(answered)
    freed_by = ""
    for _, result in answered:
        freed_by = freed_by or result.isr_change
    if not (freed_by or call.causes or call.place):
        return [_UNTRACED] * len(answered)
    return [
        _Traced(call.causes.get(index, ""), call.place, _send_id(call, item, result), result.isr_change or freed_by)
        for index, (item, result) in enumerate(answered)
    ]


def _send_id(call: ProduceCall, item: Item, result: ProduceResult) -> str:
    """Id for the span of the call, as the leader knows it: it was told, or comes to it by itself."""
    topic_id, partition = item.term.topic_id, item.partition.partition
    told = call.send_ids.get((topic_id, partition), "")
    return told or propagation.waiting_id(result.isr_change, topic_id, partition, result.base_offset)


def _call_code(error: RegnumError, *, idempotent: bool) -> Code:
    if idempotent and error.code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR:
        # A call that fails as a whole without a reason is a broken connection or a broker that is about to end;
        # numbers make a repeat safe.
        return errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    return error.code


def _note_acknowledgement(
    outages: OutageWatch,
    clock: Clock,
    item: Item,
    base_offset: int,
    traced: _Traced,
    trouble: Trouble | None,
) -> None:
    batch = item.batch
    now = Acknowledgement(
        at_unix_nano=tracing.now_unix_nano(),
        term=item.term,
        offset=base_offset,
        records=len(batch.receipts),
        tries=batch.tries,
        waited_s=clock.monotonic() - batch.opened_s,
        sent_unix_nano=batch.sent_unix_nano,
        cause=traced.cause,
        send_id=traced.send_id,
        isr_change=traced.isr_change,
    )
    places = (traced.place, *batch.places) if traced.place else batch.places
    outages.acknowledged(item.partition, now, trouble, places)
