"""QuotaService: what the controller asks."""

import asyncio
from typing import Any, Final

from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.bucket import Bucket, wait_ms
from regnum_model.quota_matching import BucketKey
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns, slices
from regnum_telemetry.instruments import quota as instruments
from regnum_telemetry.metrics import Metrics

from regnum_quota.admission import Verdict
from regnum_quota.office import Office
from regnum_quota.requests import read
from regnum_quota.usage import Used

MUTATIONS_PER_TURN: Final = 1_000
"""Mutations judged between two turns of the event loop (safety rule S22)."""
BUCKETS_PER_TURN: Final = 1_000
"""Buckets taken over, or put into an answer, between two turns."""
THROTTLE_MS_MAX: Final = 2**31 - 1
"""Longest throttle time that the answer can carry: 24 days."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class QuotaServicer(quota_pb2_grpc.QuotaServiceServicer):
    """Judges from the ledger of the term."""

    def __init__(self, office: Office, clock: Clock, metrics: Metrics | None = None) -> None:
        """``metrics``: where verdicts are counted; None: nobody asks."""
        counted = metrics or Metrics()
        self._admitted: Final = counted.counter(instruments.QUOTA_ADMISSIONS, "admitted")
        self._throttled: Final = counted.counter(instruments.QUOTA_ADMISSIONS, "throttled")
        self._office: Final = office
        self._clock: Final = clock

    async def Admit(  # noqa: N802 - gRPC's name
        self,
        request: quota_pb2.AdmitRequest,
        context: Context,  # noqa: ARG002
    ) -> quota_pb2.AdmitResponse:
        """Judge, and charge what is admitted."""
        asked = read(request, self._clock.monotonic())
        await asyncio.sleep(0)
        term = self._office.term
        await term.catch_up(asked.changes_seen)
        async for known in slices(asked.known, BUCKETS_PER_TURN):
            now_s = self._clock.monotonic()
            for key, bucket in known:
                term.ledger.take_over(key, bucket, now_s)
        verdicts: list[Verdict] = []
        turns = Turns(MUTATIONS_PER_TURN)
        for admission in asked.admissions:
            # Asked for each time: the term may have ended meanwhile.
            verdicts.append(term.ledger.judge(admission, self._clock.monotonic()))
            await turns.took(1 + len(admission.permits))
        admitted = sum(sum(verdict.admitted) for verdict in verdicts)
        self._admitted.add(admitted)
        self._throttled.add(sum(len(verdict.admitted) for verdict in verdicts) - admitted)
        response = quota_pb2.AdmitResponse(incarnation=term.incarnation)
        async for judged in slices(verdicts, BUCKETS_PER_TURN):
            response.verdicts.extend(
                quota_pb2.Verdict(admitted=verdict.admitted, throttle_time_ms=min(verdict.throttle_ms, THROTTLE_MS_MAX))
                for verdict in judged
            )
        drawn_on = dict.fromkeys(key for verdict in verdicts for key in verdict.drawn_on)
        async for keys in slices(drawn_on, BUCKETS_PER_TURN):
            drawn = term.ledger.state(keys, self._clock.monotonic())
            response.buckets.extend(_state(key, bucket) for key, bucket in drawn)
        return response

    async def DescribeBuckets(  # noqa: N802 - gRPC's name
        self,
        request: quota_pb2.DescribeBucketsRequest,
        context: Context,  # noqa: ARG002
    ) -> quota_pb2.DescribeBucketsResponse:
        """All buckets, or those that were used last."""
        if request.used_last_max < 0:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"used_last_max is {request.used_last_max}; give 0 or more"
            )
        term = self._office.term
        in_use = term.ledger.in_use(self._clock.monotonic())
        buckets: list[quota_pb2.BucketDescription] = []
        if request.used_last_max:
            async for keys in slices(in_use[: request.used_last_max], BUCKETS_PER_TURN):
                now_s = self._clock.monotonic()
                usages = (term.ledger.usage(key, now_s) for key in keys)
                buckets.extend(_used(used) for used in usages if used is not None)
            return quota_pb2.DescribeBucketsResponse(incarnation=term.incarnation, buckets=buckets, in_use=len(in_use))
        async for described in slices(term.ledger.describe(self._clock.monotonic()), BUCKETS_PER_TURN):
            buckets.extend(
                quota_pb2.BucketDescription(state=_state(key, bucket), rate=limit.rate, burst=limit.burst, idle_ms=-1)
                for key, bucket, limit in described
            )
        return quota_pb2.DescribeBucketsResponse(incarnation=term.incarnation, buckets=buckets, in_use=len(in_use))


def _used(used: Used) -> quota_pb2.BucketDescription:
    return quota_pb2.BucketDescription(
        state=_state(used.key, used.bucket),
        rate=used.limit.rate,
        burst=used.limit.burst,
        mutation_rate=used.usage.rate,
        refused_rate=used.usage.refused_rate,
        throttle_time_ms=min(wait_ms(used.bucket, used.limit), THROTTLE_MS_MAX),
        idle_ms=round(used.usage.idle_s * 1000),
    )


def _state(key: BucketKey, bucket: Bucket) -> quota_pb2.BucketState:
    # None leaves a field unset.
    return quota_pb2.BucketState(
        key=quota_pb2.BucketKey(user=key.user, client_id=key.client_id), tokens=bucket.tokens, age_ms=0
    )
