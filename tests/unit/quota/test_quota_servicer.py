"""What the quota service answers, and what it refuses whole."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import quotas
from regnum_model.nodes import Address
from regnum_model.quotas import DEFAULT, QuotaEntity, QuotaNode, QuotaProcessNode
from regnum_quota.gauges import show_quotas
from regnum_quota.office import Office
from regnum_quota.requests import ADMISSIONS_MAX, MUTATIONS_MAX
from regnum_quota.servicer import QuotaServicer
from regnum_quota.term import Term
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import quota as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock, settle

STRICT, PERMISSIVE = quota_pb2.ADMIT_MODE_STRICT, quota_pb2.ADMIT_MODE_PERMISSIVE


class Process:
    """A quota process behind its servicer; the quotas of ann (10/s, burst 100) are set after it became active."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.clock = FakeClock()
        self.store = MemoryStore(self.server)
        self.office = Office()
        self.metrics = Metrics()
        self.servicer = QuotaServicer(self.office, self.clock, self.metrics)
        show_quotas(self.metrics, self.office, self.clock, entities_max=3)
        self.term = Term(self.store, self.clock, incarnation="run", exempt=frozenset({"root"}))
        self.running: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await ensure_folders(self.store, quotas.FOLDERS, self.clock)
        self.running = asyncio.create_task(self.term.run())
        await settle(50)
        self.office.begin(self.term)
        await self.set_quota(QuotaEntity(user="ann"), rate=10)

    async def set_quota(self, entity: QuotaEntity, *, rate: float, burst: float = 100) -> None:
        """Without a change that announces it: whoever asks says that it has seen one."""
        data = QuotaNode(config={quotas.RATE_KEY: str(rate), quotas.BURST_KEY: str(burst)}).encode()
        await self.store.create(entity.path, data, make_parents=True)
        await self.term.catch_up(self.seen)

    @property
    def seen(self) -> int:
        """A higher number each time."""
        self._seen = getattr(self, "_seen", 0) + 1
        return self._seen

    async def admit(self, *admissions: quota_pb2.Admission, **other: object) -> quota_pb2.AdmitResponse:
        return await self.servicer.Admit(quota_pb2.AdmitRequest(admissions=admissions, **other), None)

    async def refusal(self, *admissions: quota_pb2.Admission, **other: object) -> RegnumError:
        with pytest.raises(RegnumError) as refused:
            await self.admit(*admissions, **other)
        return refused.value

    async def buckets(self) -> list[quota_pb2.BucketDescription]:
        return list((await self.servicer.DescribeBuckets(quota_pb2.DescribeBucketsRequest(), None)).buckets)


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    process = Process()
    await process.begin()
    yield process
    if process.running is not None:
        process.running.cancel()
        await asyncio.gather(process.running, return_exceptions=True)


def asked(
    *permits: int, user: str = "ann", client: str = "", mode: "quota_pb2.AdmitMode" = STRICT, id: str = ""
) -> quota_pb2.Admission:
    return quota_pb2.Admission(
        request_id=id,
        entity=quota_pb2.MutatingEntity(user=user, client_id=client),
        mode=mode,
        mutations=[quota_pb2.Mutation(name=f"topic-{number}", permits=cost) for number, cost in enumerate(permits)],
    )


def bucket(tokens: float, *, age_ms: int = 0, **key: str) -> quota_pb2.BucketState:
    return quota_pb2.BucketState(key=quota_pb2.BucketKey(**key), tokens=tokens, age_ms=age_ms)


async def test_verdicts_are_counted_and_the_emptiest_bucket_is_shown(process: Process) -> None:
    await process.admit(asked(60, 60, 60), asked(1, user="bob"), asked(5, user="root"))
    shown = {one.instrument: dict(one.numbers) for one in process.metrics.read() if one.numbers}
    assert shown[instruments.QUOTA_ADMISSIONS] == {("admitted",): 4, ("throttled",): 1}
    assert shown[instruments.QUOTA_ACTIVE] == {(): 1}
    assert shown[instruments.QUOTA_BUCKETS] == {(): 1}
    assert shown[instruments.QUOTA_TOKENS_LEAST] == {(): -20}
    process.office.end()
    shown = {one.instrument: dict(one.numbers) for one in process.metrics.read() if one.numbers}
    assert shown[instruments.QUOTA_ACTIVE] == {(): 0}
    assert instruments.QUOTA_BUCKETS not in shown


def shown_of(process: Process, instrument: Instrument) -> dict[tuple[str, ...], float]:
    (found,) = (one.numbers for one in process.metrics.read() if one.instrument is instrument)
    return dict(found)


async def test_buckets_in_use_are_shown_by_user_and_client_id_and_the_idle_ones_are_not(process: Process) -> None:
    await process.set_quota(QuotaEntity(client_id="app"), rate=5, burst=10)
    await process.admit(asked(60, 60, 60), asked(10, user="bob", client="app"))
    assert shown_of(process, instruments.QUOTA_RATE) == {("ann", ""): 12.0, ("", "app"): 1.0}
    assert shown_of(process, instruments.QUOTA_TOKENS) == {("ann", ""): -20.0, ("", "app"): 0.0}
    assert shown_of(process, instruments.QUOTA_THROTTLE_TIME) == {("ann", ""): 2.0, ("", "app"): 0.0}
    process.clock.skip(3_601.0)
    assert shown_of(process, instruments.QUOTA_RATE) == {}
    await process.admit(asked(1))
    process.clock.skip(1.0)
    assert set(shown_of(process, instruments.QUOTA_TOKENS)) == {("ann", "")}
    process.office.end()
    process.clock.skip(1.0)
    assert shown_of(process, instruments.QUOTA_TOKENS) == {}, "nothing is shown by a process that does not decide"


async def test_whatever_callers_name_themselves_no_two_series_are_the_same_and_there_are_few(process: Process) -> None:
    """A scrape with two equal series, or with one for each of 100,000 names, would be refused whole or cost much."""
    for client in (DEFAULT, "other"):
        await process.set_quota(QuotaEntity(user=DEFAULT, client_id=client), rate=5, burst=10)
    names = [("other", "other"), ("eve", ""), ("eve", "<unnamed>"), ("", ""), *((f"u{n}", 'a"\n') for n in range(50))]
    for user, client in names:
        await process.admit(asked(2, user=user, client=client))
    process.clock.skip(1.0)
    rates = [one.numbers for one in process.metrics.read() if one.instrument is instruments.QUOTA_RATE]
    labels = [label for label, _ in rates[0]]
    assert len(labels) == len(set(labels)) == 4
    assert labels[-1] == ("other", "other")
    assert sum(value for _, value in rates[0]) == pytest.approx(2 * len(names) / 10)


async def test_several_requests_are_judged_one_after_another(process: Process) -> None:
    answer = await process.admit(
        asked(60, 60, 60), asked(1, user="bob"), asked(1, mode=PERMISSIVE), asked(5, user="root"), asked()
    )
    assert answer.incarnation == "run"
    assert [(list(verdict.admitted), verdict.throttle_time_ms) for verdict in answer.verdicts] == [
        ([True, True, False], 2_000),
        ([True], 0),
        ([True], 2_100),
        ([True], 0),
        ([], 0),
    ]
    assert list(answer.buckets) == [bucket(-21, user="ann")]


async def test_a_mode_that_is_not_set_is_strict(process: Process) -> None:
    answer = await process.admit(asked(110, 1, mode=quota_pb2.ADMIT_MODE_UNSPECIFIED))
    assert list(answer.verdicts[0].admitted) == [True, False]


async def test_a_repeat_gets_the_same_verdict_and_costs_nothing(process: Process) -> None:
    first = await process.admit(asked(60, 60, 60, id="r"))
    assert await process.admit(asked(60, 60, 60, id="r")) == first


async def test_pairs_users_clients_and_the_cluster_are_told_apart_on_the_wire(process: Process) -> None:
    await process.set_quota(QuotaEntity(user="bob", client_id=DEFAULT), rate=1)
    await process.set_quota(QuotaEntity(client_id=DEFAULT), rate=2)
    await process.set_quota(QuotaEntity(), rate=50, burst=500)
    answer = await process.admit(asked(1), asked(2, user="bob"), asked(3, user="cid", client="app"))
    assert sorted(answer.buckets, key=lambda state: state.tokens) == [
        bucket(97, client_id="app"),
        bucket(98, user="bob", client_id=""),
        bucket(99, user="ann"),
        bucket(494),
    ]
    described = {tuple(item.state.key.ListFields()): (item.rate, item.burst) for item in await process.buckets()}
    assert sorted(described.values()) == [(1, 100), (2, 100), (10, 100), (50, 500)]


async def test_buckets_of_an_earlier_process_go_on(process: Process) -> None:
    await process.clock.advance(100.0)
    answer = await process.admit(asked(1), known=[bucket(-80, age_ms=1_000, user="ann"), bucket(7, user="nobody")])
    assert (list(answer.verdicts[0].admitted), answer.verdicts[0].throttle_time_ms) == ([False], 7_000)
    # Known by now: what others say counts no more.
    answer = await process.admit(asked(1), known=[bucket(100, user="ann")])
    assert answer.verdicts[0].throttle_time_ms == 7_000
    assert len(await process.buckets()) == 1


async def test_a_change_that_the_controller_has_seen_is_read_before_judging(process: Process) -> None:
    data = QuotaNode(config={quotas.RATE_KEY: "1", quotas.BURST_KEY: "1"}).encode()
    process.server.hold_watches()
    await process.store.create(QuotaEntity().path, data)
    await process.store.create(quotas.change_path(90), b"")
    answer = await process.admit(asked(5, 5, user="bob"), changes_seen=90)
    assert list(answer.verdicts[0].admitted) == [True, False]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"admissions": [asked(1), asked(5, -1)]}, "'topic-1' costs -1 permits"),
        ({"admissions": [asked(2**31)]}, "a mutation costs 0 to 2147483647"),
        ({"admissions": [asked(1)] * (ADMISSIONS_MAX + 1)}, "send at most 3000"),
        ({"admissions": [asked(1), asked(*[1] * MUTATIONS_MAX)]}, "send at most 10000"),
        ({"admissions": [asked(1), asked(1, id="x" * 201)]}, "a request id has at most 200 characters"),
        ({"admissions": [asked(1), asked(1, user="x" * 1_025)]}, "at most 1024 characters"),
        ({"admissions": [asked(1), asked(1, client="x" * 1_025)]}, "at most 1024 characters"),
        ({"admissions": [asked(1), asked(1, mode=7)]}, "send STRICT or PERMISSIVE"),  # type: ignore[arg-type]
        ({"admissions": [asked(1)], "changes_seen": -1}, "numbered from 1"),
        ({"admissions": [asked(1)], "known": [bucket(float("nan"), user="ann")]}, "leave it out"),
        ({"admissions": [asked(1)], "known": [bucket(float("inf"), user="ann")]}, "leave it out"),
        ({"admissions": [asked(1)], "known": [bucket(1, age_ms=-1, user="ann")]}, "leave it out"),
        ({"admissions": [asked(1)], "known": [bucket(1, user="ann")] * 5_001}, "send at most 5000"),
    ],
)
async def test_a_call_that_is_wrong_anywhere_changes_nothing(
    process: Process, wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(RegnumError, match=message) as refused:
        await process.servicer.Admit(quota_pb2.AdmitRequest(**wrong), None)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert await process.buckets() == []


async def test_throttle_times_that_no_answer_can_carry_are_cut(process: Process) -> None:
    await process.set_quota(QuotaEntity(user="bob"), rate=1e-6, burst=1)
    answer = await process.admit(asked(2**31 - 1, 1, user="bob"))
    assert answer.verdicts[0].throttle_time_ms == 2**31 - 1


async def test_a_process_that_stands_by_sends_callers_to_the_active_one(process: Process) -> None:
    process.office.end()
    refused = await process.refusal(asked(1))
    assert refused.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    assert "no active quota process is known" in refused.message
    process.office.heard_of(QuotaProcessNode(id=2, incarnation="b", internal=Address(host="h", port=9)))
    refused = await process.refusal(asked(1))
    assert dict(refused.metadata) == {"quota_id": "2", "quota_address": "h:9"}
    with pytest.raises(RegnumError, match="ask it at h:9"):
        await process.buckets()


async def test_a_process_whose_session_is_in_doubt_judges_nothing(process: Process) -> None:
    process.server.disconnect(process.store.session_id)
    assert (await process.refusal(asked(1))).code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    assert (await process.refusal(asked(1), changes_seen=99)).code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
    process.server.reconnect(process.store.session_id)
    assert await process.buckets() == []


async def test_a_session_that_ends_in_the_middle_of_a_call_ends_the_call(process: Process) -> None:
    """Between two turns of a long call another process may have become active."""
    call = asyncio.create_task(process.admit(*[asked(*[1] * 600)] * 10))
    # One turn: the call has charged a part of what it asks, and gives way.
    await asyncio.sleep(0)
    process.server.expire(process.store.session_id)
    with pytest.raises(RegnumError) as refused:
        await call
    assert refused.value.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
