"""QuotaService: what the controller asks."""

import asyncio
from typing import Any, Final

from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum_model.bucket import Bucket
from regnum_model.quota_matching import BucketKey
from regnum_service.clock import Clock

from regnum_quota.admission import Verdict
from regnum_quota.office import Office
from regnum_quota.requests import read

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

    def __init__(self, office: Office, clock: Clock) -> None:
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
        for start in range(0, len(asked.known), BUCKETS_PER_TURN):
            now_s = self._clock.monotonic()
            for key, bucket in asked.known[start : start + BUCKETS_PER_TURN]:
                term.ledger.take_over(key, bucket, now_s)
            await asyncio.sleep(0)
        verdicts: list[Verdict] = []
        judged = 0
        for admission in asked.admissions:
            if judged >= MUTATIONS_PER_TURN:
                judged = 0
                await asyncio.sleep(0)
            # Asked for each time: the term may have ended meanwhile.
            verdicts.append(term.ledger.judge(admission, self._clock.monotonic()))
            judged += 1 + len(admission.permits)
        response = quota_pb2.AdmitResponse(incarnation=term.incarnation)
        for start in range(0, len(verdicts), BUCKETS_PER_TURN):
            await asyncio.sleep(0)
            response.verdicts.extend(
                quota_pb2.Verdict(admitted=verdict.admitted, throttle_time_ms=min(verdict.throttle_ms, THROTTLE_MS_MAX))
                for verdict in verdicts[start : start + BUCKETS_PER_TURN]
            )
        drawn_on = tuple(dict.fromkeys(key for verdict in verdicts for key in verdict.drawn_on))
        for start in range(0, len(drawn_on), BUCKETS_PER_TURN):
            await asyncio.sleep(0)
            drawn = term.ledger.state(drawn_on[start : start + BUCKETS_PER_TURN], self._clock.monotonic())
            response.buckets.extend(_state(key, bucket) for key, bucket in drawn)
        return response

    async def DescribeBuckets(  # noqa: N802 - gRPC's name
        self,
        request: quota_pb2.DescribeBucketsRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> quota_pb2.DescribeBucketsResponse:
        """All buckets."""
        term = self._office.term
        buckets: list[quota_pb2.BucketDescription] = []
        for key, bucket, limit in term.ledger.describe(self._clock.monotonic()):
            buckets.append(quota_pb2.BucketDescription(state=_state(key, bucket), rate=limit.rate, burst=limit.burst))
            if len(buckets) % BUCKETS_PER_TURN == 0:
                await asyncio.sleep(0)
        return quota_pb2.DescribeBucketsResponse(incarnation=term.incarnation, buckets=buckets)


def _state(key: BucketKey, bucket: Bucket) -> quota_pb2.BucketState:
    # None leaves a field unset.
    return quota_pb2.BucketState(
        key=quota_pb2.BucketKey(user=key.user, client_id=key.client_id), tokens=bucket.tokens, age_ms=0
    )
