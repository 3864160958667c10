"""What callers ask, checked whole before anything is judged. Pure but for the wire's messages.

Limits keep one call from holding the event loop and one caller from filling the memory; the controller's own slices
lie far below them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from regnum.quota.v1 import quota_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.bucket import Bucket
from regnum_model.quota_matching import BucketKey
from regnum_service.errors import RegnumError

from regnum_quota.admission import Admission, Mode

ADMISSIONS_MAX: Final = 3_000
"""Requests in one call."""
MUTATIONS_MAX: Final = 10_000
"""Mutations in one call, of all its requests together."""
KNOWN_MAX: Final = 5_000
"""Buckets in one call."""
PERMITS_MAX: Final = 2**31 - 1
"""Cost of one mutation."""
REQUEST_ID_LENGTH_MAX: Final = 200
"""Characters of a request id."""
NAME_LENGTH_MAX: Final = 1_024
"""Characters of a user or a client id. Longer ones than a quota may name fall under the defaults."""

_MODES: Final = {
    quota_pb2.ADMIT_MODE_UNSPECIFIED: Mode.STRICT,
    quota_pb2.ADMIT_MODE_STRICT: Mode.STRICT,
    quota_pb2.ADMIT_MODE_PERMISSIVE: Mode.PERMISSIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that can be answered."""

    admissions: tuple[Admission, ...]
    """Requests to judge, in order."""
    changes_seen: int
    """Newest change of quotas that the caller knows."""
    known: tuple[tuple[BucketKey, Bucket], ...]
    """Buckets of earlier processes."""


def read(request: quota_pb2.AdmitRequest, now_s: float) -> Asked:
    """Check and take over a call. Raises RegnumError INVALID_REQUEST."""
    if len(request.admissions) > ADMISSIONS_MAX:
        raise _invalid(f"{len(request.admissions)} requests in one call; send at most {ADMISSIONS_MAX}")
    mutations = sum(len(admission.mutations) for admission in request.admissions)
    if mutations > MUTATIONS_MAX:
        raise _invalid(f"{mutations} mutations in one call; send at most {MUTATIONS_MAX}")
    if len(request.known) > KNOWN_MAX:
        raise _invalid(f"{len(request.known)} buckets in one call; send at most {KNOWN_MAX}")
    if request.changes_seen < 0:
        raise _invalid(f"changes_seen is {request.changes_seen}; changes are numbered from 1, and 0 means none")
    return Asked(
        admissions=tuple(_admission(admission) for admission in request.admissions),
        changes_seen=request.changes_seen,
        known=tuple(_known(state, now_s) for state in request.known),
    )


def _admission(asked: quota_pb2.Admission) -> Admission:
    if len(asked.request_id) > REQUEST_ID_LENGTH_MAX:
        raise _invalid(f"a request id has at most {REQUEST_ID_LENGTH_MAX} characters, not {len(asked.request_id)}")
    if max(len(asked.entity.user), len(asked.entity.client_id)) > NAME_LENGTH_MAX:
        raise _invalid(f"a user or client id has at most {NAME_LENGTH_MAX} characters")
    mode = _MODES.get(asked.mode)
    if mode is None:
        raise _invalid(f"mode {asked.mode} is none that this version knows; send STRICT or PERMISSIVE")
    return Admission(
        request_id=asked.request_id,
        user=asked.entity.user,
        client_id=asked.entity.client_id,
        mode=mode,
        permits=_permits(asked.mutations),
    )


def _permits(mutations: Sequence[quota_pb2.Mutation]) -> tuple[int, ...]:
    permits = tuple(mutation.permits for mutation in mutations)
    if permits and not 0 <= min(permits) <= max(permits) <= PERMITS_MAX:
        wrong = next(mutation for mutation in mutations if not 0 <= mutation.permits <= PERMITS_MAX)
        raise _invalid(f"{wrong.name[:100]!r} costs {wrong.permits} permits; a mutation costs 0 to {PERMITS_MAX}")
    return permits


def _known(state: quota_pb2.BucketState, now_s: float) -> tuple[BucketKey, Bucket]:
    if not math.isfinite(state.tokens) or state.age_ms < 0:
        raise _invalid(f"a bucket of {state.tokens:g} tokens, {state.age_ms} ms ago, is none; leave it out")
    key = BucketKey(
        state.key.user if state.key.HasField("user") else None,
        state.key.client_id if state.key.HasField("client_id") else None,
    )
    return key, Bucket(state.tokens, now_s - state.age_ms / 1000)


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
