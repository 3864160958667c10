"""Quotas as clients meet them: set by AlterClientQuotas, felt by whoever creates and deletes topics."""

from regnum.admin.v1 import admin_pb2
from regnum_model.bucket import DEFAULT_BURST_S, Bucket, Limit, charge, full, is_exhausted, refill, wait_ms
from regnum_model.quota_changes import EntityChange, LimitChange, check_change
from regnum_model.quota_matching import BucketKey, limits_on
from regnum_model.quotas import ANONYMOUS, BURST_KEY, DEFAULT, RATE_KEY, QuotaEntity, Subject
from regnum_service.clock import Clock

NEWEST = 6
"""From this request version on creations are refused; api_version 0 is the newest."""


class FakeQuotas:
    """Limits, and the buckets of those who have drawn on them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.values: dict[QuotaEntity, dict[str, float]] = {}
        self.usage = admin_pb2.DescribeQuotaUsageResponse()
        """What is said of usage."""
        self._buckets: dict[BucketKey, Bucket] = {}
        self.mutations: dict[str, bytes] = {}
        """Answers by mutation id: a repeat is not carried out."""

    def now_s(self) -> float:
        """When a request came: all of it is judged at that moment, however long the machine takes."""
        return self._clock.monotonic()

    def judge(self, header_version: int, client_id: str, permits: int, *, now_s: float) -> tuple[bool, int]:
        """Whether so many partitions may be made or removed now, and how long the caller should wait."""
        matches = limits_on(self._limits(), ANONYMOUS, client_id)
        for match in matches:
            bucket = self._buckets.get(match.key, full(match.limit, now_s))
            self._buckets[match.key] = refill(bucket, match.limit, now_s)
        strict = header_version == 0 or header_version >= NEWEST
        admitted = not (strict and any(is_exhausted(self._buckets[match.key]) for match in matches))
        if admitted:
            for match in matches:
                self._buckets[match.key] = charge(self._buckets[match.key], match.limit, permits, now_s)
        wait = max((wait_ms(self._buckets[match.key], match.limit) for match in matches), default=0)
        return admitted, 0 if admitted and strict else wait

    def alter(self, request: admin_pb2.AlterClientQuotasRequest) -> admin_pb2.AlterClientQuotasResponse:
        """Set and remove; what the controller refuses is refused."""
        answer = admin_pb2.AlterClientQuotasResponse()
        if request.mutation_id in self.mutations:
            answer.ParseFromString(self.mutations[request.mutation_id])
            return answer
        for alteration in request.alterations:
            result = answer.results.add(entity=alteration.entity)
            refused = check_change(_change(alteration), repeated=frozenset())
            if refused is not None:
                result.error_code = refused.code
                result.error_message = refused.message
                continue
            if request.validate_only:
                continue
            entity = _entity(alteration.entity)
            values = self.values.setdefault(entity, {})
            for operation in alteration.operations:
                if operation.remove:
                    values.pop(operation.key, None)
                else:
                    values[operation.key] = operation.value
            if not values:
                del self.values[entity]
        if request.mutation_id and not request.validate_only:
            self.mutations[request.mutation_id] = answer.SerializeToString()
        return answer

    def used(self, request: admin_pb2.DescribeQuotaUsageRequest) -> admin_pb2.DescribeQuotaUsageResponse:
        """What a test says, as far as it is asked for."""
        answer = admin_pb2.DescribeQuotaUsageResponse()
        answer.CopyFrom(self.usage)
        del answer.usages[request.limit or 100 :]
        return answer

    def describe(self, request: admin_pb2.DescribeClientQuotasRequest) -> admin_pb2.DescribeClientQuotasResponse:
        """All, or those of one entity."""
        wanted = _entity(request.entity) if request.HasField("entity") else None
        answer = admin_pb2.DescribeClientQuotasResponse()
        for entity, values in self.values.items():
            if wanted is None or entity == wanted:
                description = answer.quotas.add(values=values)
                _write(description.entity, entity)
        return answer

    def _limits(self) -> dict[QuotaEntity, Limit]:
        return {
            entity: Limit(rate=values[RATE_KEY], burst=values.get(BURST_KEY, values[RATE_KEY] * DEFAULT_BURST_S))
            for entity, values in self.values.items()
            if RATE_KEY in values
        }


def _change(alteration: admin_pb2.QuotaAlteration) -> EntityChange:
    limits = [LimitChange(key=one.key, value=None if one.remove else one.value) for one in alteration.operations]
    return EntityChange(entity=_entity(alteration.entity), limits=tuple(limits))


def _entity(message: admin_pb2.QuotaEntity) -> QuotaEntity:
    return QuotaEntity(
        user=_subject(message.user) if message.HasField("user") else None,
        client_id=_subject(message.client_id) if message.HasField("client_id") else None,
    )


def _subject(message: admin_pb2.QuotaSubject) -> Subject:
    return DEFAULT if message.default_for_all else message.name


def _write(message: admin_pb2.QuotaEntity, entity: QuotaEntity) -> None:
    for part, subject in ((message.user, entity.user), (message.client_id, entity.client_id)):
        if subject is DEFAULT:
            part.default_for_all = True
        elif isinstance(subject, str):
            part.name = subject
