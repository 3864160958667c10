"""Multis, batches and large reads as etcd transactions, and what their answers mean. Pure.

A multi is one transaction. A batch is transactions of one nested transaction for each group, all under the session's
key and the fence (safety rules S3, S4, S6): so each group has its own outcome. The limit that etcd sets applies to
the outer list plus the longest list of any nested transaction.

No transaction may be read-only, which etcd takes it for when both its lists hold nothing but ranges. Such a one is
evaluated outside of raft under the context of its caller, and etcd 3.5 ends its process when that context ends in the
middle: a client that is killed would take the store along. A nested transaction suffices, also one of comparisons
only; a read of many keys has the deletion of a key that never exists, in the branch that is never taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.conditions import (
    Condition,
    Interval,
    Seen,
    conditions,
    exists,
    first_failure,
    places,
)
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import (
    Check,
    Create,
    Delete,
    Expired,
    Fenced,
    Group,
    Operation,
    OperationResult,
    Outcome,
    Refused,
    Set,
    Stat,
    Unknown,
    Written,
)

MAX_TRANSACTION_BYTES: Final = 1_200_000
"""Bytes of one request; etcd's default limit is 1.5 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A group as a transaction without the session's and the fence's comparisons."""

    operations: Group
    """What it does."""
    session_id: int
    """Owner of what it creates as ephemeral."""
    message: Any
    """``TxnRequest``."""
    size: int
    """Longest of its lists, which counts against the limit."""


def part(operations: Sequence[Operation], keys: Keys, session_id: int) -> Part:
    """Translate a group."""
    wanted = conditions(operations, keys)
    message = rpc_pb2.TxnRequest()
    message.compare.extend(condition.comparison for condition in wanted)
    for operation in operations:
        key = keys.key(operation.path)
        match operation:
            case Check():
                continue
            case Create(data=data, ephemeral=ephemeral):
                put = rpc_pb2.PutRequest(key=key, value=data, lease=session_id if ephemeral else 0)
                message.success.add(request_put=put)
            case Set(data=data):
                message.success.add(
                    request_put=rpc_pb2.PutRequest(key=key, value=data, ignore_lease=True, prev_kv=True)
                )
            case Delete():
                message.success.add(request_delete_range=rpc_pb2.DeleteRangeRequest(key=key))
            case _:
                assert_never(operation)
    message.failure.extend(_look(at) for at in places(wanted))
    size = max(len(message.compare), len(message.success), len(message.failure), 1)
    return Part(operations=tuple(operations), session_id=session_id, message=message, size=size)


def check_size(item: Part, max_txn_ops: int) -> None:
    """Raise InvalidRequest for a group that fits into no transaction."""
    if item.size + 2 > max_txn_ops:
        raise InvalidRequest(
            f"a multi of {len(item.operations)} operations needs {item.size + 2} etcd operations and the limit is "
            f"{max_txn_ops}; split it, or start etcd with --max-txn-ops and say so in the URL (?max_txn_ops=N)"
        )


def pack(sizes: Sequence[tuple[int, int]], max_txn_ops: int) -> list[list[int]]:
    """Indexes of groups for each transaction, given each group's (longest list, bytes)."""
    packs: list[list[int]] = []
    longest, total_bytes = 0, 0
    for index, (size, length) in enumerate(sizes):
        fits = (
            bool(packs)
            and len(packs[-1]) + 1 + max(longest, size) <= max_txn_ops
            and total_bytes + length <= MAX_TRANSACTION_BYTES
        )
        if not fits:
            packs.append([])
            longest, total_bytes = 0, 0
        packs[-1].append(index)
        longest, total_bytes = max(longest, size), total_bytes + length
    return packs


def batch_request(parts: Sequence[Part], session_key: bytes, fence: Sequence[Condition]) -> Any:
    """One transaction with a nested one for each group."""
    message = rpc_pb2.TxnRequest()
    message.compare.append(exists(session_key))
    message.compare.extend(condition.comparison for condition in fence)
    for item in parts:
        message.success.add(request_txn=item.message)
    message.failure.append(_look((session_key, None)))
    return message


def is_read_only(request: Any) -> bool:
    """Whether etcd would evaluate the transaction outside of raft; see the head of the module."""
    branches = (request.failure, request.success)
    return all(operation.WhichOneof("request") == "request_range" for branch in branches for operation in branch)


def read_request(wanted: Sequence[bytes], keys: Keys, *, keys_only: bool) -> Any:
    """One transaction that reads many keys and changes nothing."""
    message = rpc_pb2.TxnRequest()
    for key in wanted:
        message.success.add(request_range=rpc_pb2.RangeRequest(key=key, keys_only=keys_only))
    message.failure.add(request_delete_range=rpc_pb2.DeleteRangeRequest(key=keys.never))
    return message


def batch_outcomes(parts: Sequence[Part], answer: Any, keys: Keys) -> tuple[Outcome, ...]:
    """What became of each group."""
    if not answer.succeeded:
        alive = answer.responses[0].response_range.count > 0
        return ((Fenced() if alive else Expired()),) * len(parts)
    revision = answer.header.revision
    return tuple(
        _outcome(item, response.response_txn, revision, keys)
        for item, response in zip(parts, answer.responses, strict=True)
    )


def _outcome(item: Part, answer: Any, revision: int, keys: Keys) -> Outcome:
    if answer.succeeded:
        return Written(_results(item, answer.responses, revision))
    # The conditions are made again rather than kept: failures are rare, and batches are large.
    wanted = conditions(item.operations, keys)
    looked = zip(places(wanted), answer.responses, strict=True)
    failure = first_failure(wanted, {at: _seen(response) for at, response in looked})
    # Comparisons and failure branch belong to one transaction, so one of the conditions must have failed.
    return Unknown() if failure is None else Refused(failure)


def _look(at: Interval) -> Any:
    start, end = at
    request = rpc_pb2.RangeRequest(key=start, keys_only=True, limit=1)
    if end is not None:
        request.range_end = end
    return rpc_pb2.RequestOp(request_range=request)


def _seen(response: Any) -> Seen:
    for found in response.response_range.kvs:
        return Seen(version=found.version, lease=found.lease)
    return Seen(version=0, lease=0)


def _results(item: Part, responses: Any, revision: int) -> tuple[OperationResult, ...]:
    answers = iter(responses)
    results: list[OperationResult] = []
    for operation in item.operations:
        match operation:
            case Check():
                stat = None
            case Create(ephemeral=ephemeral):
                next(answers)
                owner = item.session_id if ephemeral else None
                stat = Stat(
                    creation_id=revision,
                    modification_id=revision,
                    version=0,
                    children_id=revision,
                    ephemeral_owner=owner,
                )
            case Set():
                stat = _stat_after_set(next(answers).response_put.prev_kv, revision)
            case Delete():
                next(answers)
                stat = None
            case _:
                assert_never(operation)
        results.append(OperationResult(operation.path, stat))
    return tuple(results)


def _stat_after_set(before: Any, revision: int) -> Stat:
    return Stat(
        creation_id=before.create_revision,
        modification_id=revision,
        version=before.version,
        children_id=revision,
        ephemeral_owner=before.lease or None,
    )
