"""Quota processes for tests of the election service: buckets that really count, and every way to go wrong."""

import asyncio
from collections.abc import Callable
from typing import Final

from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_model.bucket import Bucket, Limit, charge, empty, full, is_exhausted, refill, wait_ms
from regnum_model.nodes import Address
from regnum_model.quota_matching import BucketKey, limit_of, limits_on
from regnum_model.quotas import QUOTA_ACTIVE, QuotaEntity, QuotaProcessNode
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError


class NoQuotaProcess:
    """The way to a process that is not there."""

    def __init__(self, node: QuotaProcessNode) -> None:
        self._address = node.internal

    async def admit(
        self,
        request: quota_pb2.AdmitRequest,  # noqa: ARG002
        *,
        timeout_s: float,  # noqa: ARG002
    ) -> quota_pb2.AdmitResponse:
        """Refused."""
        raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"nobody listens at {self._address}")

    async def describe(
        self,
        request: quota_pb2.DescribeBucketsRequest,  # noqa: ARG002
        *,
        timeout_s: float,  # noqa: ARG002
    ) -> quota_pb2.DescribeBucketsResponse:
        """Refused."""
        raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"nobody listens at {self._address}")

    async def close(self) -> None:
        """Nothing to do."""


class FakeQuotaProcess:
    """A quota process at one address; ``channel`` is the way to it."""

    def __init__(
        self,
        server: MemoryServer,
        clock: Clock,
        limits: Callable[[], dict[QuotaEntity, Limit]],
        *,
        id: int = 1,
        starts_full: bool = True,
    ) -> None:
        self.address: Final = Address(host="127.0.0.1", port=25_000 + id)
        self.requests: list[quota_pb2.AdmitRequest] = []
        """Every Admit that reached it."""
        self.dead = False
        """Calls are refused."""
        self.hangs = False
        """Calls end at their deadline."""
        self.loses_answers = 0
        """So many answers are lost, after the charge."""
        self.forgets_verdicts = False
        """Answers lack what was asked for."""
        self.held: asyncio.Event | None = None
        """While set and not fired, calls wait."""
        self.in_flight = 0
        """Calls at this moment."""
        self.in_flight_max = 0
        """Most calls at one time."""
        self.buckets: dict[BucketKey, Bucket] = {}
        """What it counts."""
        self.charged: dict[tuple[str, int], int] = {}
        """Permits by request id and position."""
        self._store = MemoryStore(server)
        self._server = server
        self._clock = clock
        self._limits = limits
        self._starts_full = starts_full
        self._since_s = clock.monotonic()
        self._node = QuotaProcessNode(id=id, incarnation=f"run-{id}", internal=self.address)

    async def activate(self) -> None:
        """Become the one that decides."""
        await self._store.create(QUOTA_ACTIVE, self._node.encode(), ephemeral=True, make_parents=True)

    def leave(self) -> None:
        """The session is over."""
        self._server.expire(self._store.session_id)

    async def admit(self, request: quota_pb2.AdmitRequest, *, timeout_s: float) -> quota_pb2.AdmitResponse:
        """Judge as the service does."""
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await asyncio.sleep(0)
            if self.dead:
                raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "dead")
            if self.hangs:
                await self._clock.sleep(timeout_s)
                raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "no answer")
            if self.held is not None:
                await self.held.wait()
            return self._answer(request)
        finally:
            self.in_flight -= 1

    async def describe(
        self, request: quota_pb2.DescribeBucketsRequest, *, timeout_s: float
    ) -> quota_pb2.DescribeBucketsResponse:
        """What it counts, the latest first."""
        if self.dead:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "dead")
        if self.hangs:
            await self._clock.sleep(timeout_s)
            raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "no answer")
        latest = list(reversed(self.buckets))
        described = [
            quota_pb2.BucketDescription(
                state=quota_pb2.BucketState(
                    key=quota_pb2.BucketKey(user=key.user, client_id=key.client_id), tokens=self.tokens(key)
                ),
                rate=limit.rate,
                burst=limit.burst,
                throttle_time_ms=wait_ms(Bucket(self.tokens(key), 0.0), limit),
            )
            for key in latest[: request.used_last_max or None]
            if (limit := limit_of(self._limits(), key)) is not None
        ]
        return quota_pb2.DescribeBucketsResponse(
            incarnation=self._node.incarnation, buckets=described, in_use=len(latest)
        )

    async def close(self) -> None:
        """Nothing to do."""

    def tokens(self, key: BucketKey) -> float:
        """What a bucket holds now."""
        return self._now(key, self.buckets[key], self._clock.monotonic())

    def _now(self, key: BucketKey, bucket: Bucket, now_s: float) -> float:
        limit = limit_of(self._limits(), key)
        return bucket.tokens if limit is None else refill(bucket, limit, now_s).tokens

    def _take_over(self, key: BucketKey, bucket: Bucket, now_s: float) -> None:
        """The lower of the two holds."""
        own = self.buckets.get(key)
        if own is None or self._now(key, bucket, now_s) < self._now(key, own, now_s):
            self.buckets[key] = bucket

    def _answer(self, request: quota_pb2.AdmitRequest) -> quota_pb2.AdmitResponse:
        self.requests.append(request)
        now_s = self._clock.monotonic()
        for state in request.known:
            self._take_over(_key(state.key), Bucket(state.tokens, now_s - state.age_ms / 1000), now_s)
        response = quota_pb2.AdmitResponse(incarnation=self._node.incarnation)
        drawn_on: dict[BucketKey, None] = {}
        for admission in request.admissions:
            response.verdicts.append(self._judge(admission, drawn_on))
        for key in drawn_on:
            response.buckets.append(
                quota_pb2.BucketState(
                    key=quota_pb2.BucketKey(user=key.user, client_id=key.client_id), tokens=self.buckets[key].tokens
                )
            )
        if self.forgets_verdicts:
            del response.verdicts[:]
        if self.loses_answers:
            self.loses_answers -= 1
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the connection broke")
        return response

    def _judge(self, admission: quota_pb2.Admission, drawn_on: dict[BucketKey, None]) -> quota_pb2.Verdict:
        now_s = self._clock.monotonic()
        matches = limits_on(self._limits(), admission.entity.user, admission.entity.client_id)
        for match in matches:
            fresh = full(match.limit, now_s) if self._starts_full else empty(self._since_s)
            self.buckets[match.key] = refill(self.buckets.get(match.key, fresh), match.limit, now_s)
            drawn_on[match.key] = None
        strict = admission.mode != quota_pb2.ADMIT_MODE_PERMISSIVE
        verdict = quota_pb2.Verdict()
        for index, mutation in enumerate(admission.mutations):
            charge_id = admission.request_id, index
            exhausted = any(is_exhausted(self.buckets[match.key]) for match in matches)
            yes = charge_id in self.charged or not (strict and exhausted)
            verdict.admitted.append(yes)
            if yes and charge_id not in self.charged:
                self.charged[charge_id] = mutation.permits
                for match in matches:
                    self.buckets[match.key] = charge(self.buckets[match.key], match.limit, mutation.permits, now_s)
        if not strict or not all(verdict.admitted):
            verdict.throttle_time_ms = max(
                (wait_ms(self.buckets[match.key], match.limit) for match in matches), default=0
            )
        return verdict


def _key(message: quota_pb2.BucketKey) -> BucketKey:
    return BucketKey(
        message.user if message.HasField("user") else None,
        message.client_id if message.HasField("client_id") else None,
    )
