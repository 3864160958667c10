"""Multis, batches and large reads as etcd transactions, and what their answers mean. Pure.

A multi is one transaction. A batch is transactions of one nested transaction for each group, all under the session's
key and the fence (safety rules S3, S4, S6): so each group has its own outcome. The limit that etcd sets applies to
the outer list plus the longest list of any nested transaction.

Nested transactions cost the server a third more than one flat transaction that does all or nothing, and the client
several times as much: each group brings its own conditions, and a branch that says which of them failed. Conflicts are
rare, so everything is first sent flat, and what groups that only check, set and create have to compare is compared
once. A refusal is definite, nothing of it has happened, and the same groups follow nested, where each gets the outcome
it would have had at once.

No transaction may be read-only, which etcd takes it for when both its lists hold nothing but ranges. Such a one is
evaluated outside of raft under the context of its caller, and etcd 3.5 ends its process when that context ends in the
middle: a client that is killed would take the store along. A nested transaction suffices, also one of comparisons
only; a read of many keys has the deletion of a key that never exists, in the branch that is never taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.conditions import (
    Condition,
    Seen,
    conditions,
    exists,
    first_failure,
    places,
    wire_version,
)
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import ROOT, parent
from regnum_coordination.port import (
    Absent,
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

MAX_GROUP_BYTES: Final = 1_500_000
"""Bytes of a request with one group alone: what is larger is refused by etcd, if it is much larger without a reason."""

_OVERHEAD_BYTES: Final = 48
"""What tags and lengths add to the keys and data of one operation, or fewer."""


@dataclass(slots=True, kw_only=True)
class Part:
    """A group on its way into a transaction. Not frozen because batches make tens of thousands of them."""

    operations: Group
    """What it does."""
    session_id: int
    """Owner of what it creates as ephemeral."""
    keys: list[bytes]
    """Key of each operation."""
    wanted: list[Condition] | None
    """What must hold; None for a group that only checks, sets and creates, whose comparisons others may share."""
    creates: bool
    """Whether such a group creates nodes; where it does not, each key is compared for itself."""
    size: int
    """Longest of its lists, which counts against the limit."""
    bytes_max: int
    """Bytes that it takes in a request, or fewer."""
    index: int
    """Place in its batch; 0 for a multi."""


def part(operations: Sequence[Operation], keys: Keys, session_id: int, *, index: int = 0) -> Part:
    """Look at a group."""
    if len(operations) == 1 and isinstance(only := operations[0], Set):  # the usual group of a large batch
        key = keys.key(only.path)
        return Part(
            operations=tuple(operations),
            session_id=session_id,
            keys=[key],
            wanted=None,
            creates=False,
            size=1,
            bytes_max=3 * len(key) + len(only.data) + _OVERHEAD_BYTES,
            index=index,
        )
    of_operations: list[bytes] = []
    plain = shares = True
    bytes_max = comparisons = 0
    created: dict[str, bool] = {}
    for operation in operations:
        path = operation.path
        of_operations.append(key := keys.key(path))
        bytes_max += 3 * len(key) + _OVERHEAD_BYTES
        comparisons += 1
        if isinstance(operation, Set):
            bytes_max += len(operation.data)
        elif isinstance(operation, Create):
            plain = False
            bytes_max += len(operation.data) + 2 * len(key) + _OVERHEAD_BYTES
            folder = parent(path)
            if folder in created:
                shares = shares and not created[folder]
            elif folder != ROOT:
                comparisons += 2
                bytes_max += 2 * (2 * len(key) + _OVERHEAD_BYTES)
            created[path] = operation.ephemeral
        elif isinstance(operation, Delete | Absent) or path == ROOT:
            plain = shares = False
    wanted = None if shares else conditions(operations, keys)
    if wanted is not None:
        comparisons = len(wanted)
        bytes_max += sum(2 * len(one.at[0]) + 2 * len(one.at[1] or b"") + _OVERHEAD_BYTES for one in wanted)
    elif not plain:
        # Of the checks and sets beside what is created.
        bytes_max += sum(2 * len(key) + _OVERHEAD_BYTES for key in of_operations)
    return Part(
        operations=tuple(operations),
        session_id=session_id,
        keys=of_operations,
        wanted=wanted,
        creates=shares and not plain,
        size=max(comparisons, len(operations), 1),
        bytes_max=bytes_max,
        index=index,
    )


def fill(item: Part, wanted: Sequence[Condition] | None, message: Any) -> None:
    """Add the group's comparisons and writes to a transaction.

    Args:
        item: the group.
        wanted: what must hold; None: each key is compared for itself.
        message: the transaction.
    """
    if wanted is not None:
        message.compare.extend(condition.comparison for condition in wanted)
    # Fields are set in place: messages that are made first and then added are copied.
    for operation, key in zip(item.operations, item.keys, strict=True):
        match operation:
            case Check(version=version):
                if wanted is None:
                    _compare(message, key, version)
            case Absent():
                continue
            case Set(data=data, version=version):
                if wanted is None:
                    _compare(message, key, version)
                put = message.success.add().request_put
                put.key, put.value, put.ignore_lease, put.prev_kv = key, data, True, True
            case Create(data=data, ephemeral=ephemeral):
                put = message.success.add().request_put
                put.key, put.value, put.lease = key, data, item.session_id if ephemeral else 0
            case Delete():
                message.success.add().request_delete_range.key = key
            case _:
                assert_never(operation)


def _compare(message: Any, key: bytes, version: int | None) -> None:
    """Comparison of a plain group; the kinds that are left out here are the defaults: the version equals."""
    compare = message.compare.add()
    compare.key = key
    if version is None:
        compare.target, compare.result, compare.create_revision = (
            rpc_pb2.Compare.CREATE,
            rpc_pb2.Compare.GREATER,
            0,
        )
    else:
        compare.version = wire_version(version)


def _fill_failure(item: Part, wanted: Sequence[Condition] | None, message: Any) -> None:
    """Add what the failure branch reads."""
    for start, end in dict.fromkeys((key, None) for key in item.keys) if wanted is None else places(wanted):
        look = message.failure.add().request_range
        look.key, look.keys_only, look.limit = start, True, 1
        if end is not None:
            look.range_end = end


def check_size(item: Part, max_txn_ops: int) -> None:
    """Raise InvalidRequest for a group that fits into no transaction."""
    if item.size + 2 > max_txn_ops:
        raise InvalidRequest(
            f"a multi of {len(item.operations)} operations needs {item.size + 2} etcd operations and the limit is "
            f"{max_txn_ops}; split it, or start etcd with --max-txn-ops and say so in the URL (?max_txn_ops=N)"
        )
    if item.bytes_max > MAX_GROUP_BYTES:
        raise InvalidRequest(
            f"a multi of {len(item.operations)} operations takes up to {item.bytes_max} bytes in an etcd request, "
            f"paths among them several times, and the limit is {MAX_GROUP_BYTES}; store less, or split it"
        )


class Packer:
    """Fills transactions with groups, one after another."""

    def __init__(self, max_txn_ops: int) -> None:
        self._max_txn_ops = max_txn_ops
        self._parts: list[Part] = []
        self._longest = 0
        self._bytes = 0

    def add(self, item: Part) -> list[Part]:
        """Take a group in; the transaction that is full without it, or nothing."""
        full: list[Part] = []
        fits = (
            len(self._parts) + 1 + max(self._longest, item.size) <= self._max_txn_ops
            and self._bytes + item.bytes_max <= MAX_TRANSACTION_BYTES
        )
        if self._parts and not fits:
            full = self.rest()
        self._parts.append(item)
        self._longest = max(self._longest, item.size)
        self._bytes += item.bytes_max
        return full

    def rest(self) -> list[Part]:
        """What has been taken in since the last full transaction."""
        parts, self._parts = self._parts, []
        self._longest, self._bytes = 0, 0
        return parts


def flat_request(parts: Sequence[Part], session_key: bytes, fence: Sequence[Condition], max_txn_ops: int) -> Any | None:
    """One transaction that does all groups or nothing; None where they do not fit into one, or nothing is written."""
    shared = _shared(parts)
    if max(1 + len(fence) + shared.comparisons, shared.writes) > max_txn_ops:
        return None
    message = rpc_pb2.TxnRequest()
    message.compare.append(exists(session_key))
    message.compare.extend(condition.comparison for condition in fence)
    for item in parts:
        _fill_flat(item, message)
    for key, version in shared.checked:
        _compare(message, key, version)
    for key in shared.parents:
        _compare(message, key, None)
        compare = message.compare.add()
        compare.key, compare.target, compare.lease = key, rpc_pb2.Compare.LEASE, 0
    return message if message.success else None


def _fill_flat(item: Part, message: Any) -> None:
    """Add the writes of a group, and the comparisons that it shares with no other."""
    if item.wanted is not None:
        fill(item, item.wanted, message)
        return
    for operation, key in zip(item.operations, item.keys, strict=True):
        if isinstance(operation, Check):
            continue
        put = message.success.add().request_put
        put.key = key
        if isinstance(operation, Set):
            if operation.version is None:
                _compare(message, key, None)
            else:
                compare = message.compare.add()
                compare.key, compare.version = key, wire_version(operation.version)
            put.value, put.ignore_lease, put.prev_kv = operation.data, True, True
        elif isinstance(operation, Create):
            compare = message.compare.add()
            compare.key, compare.version = key, 0
            put.value = operation.data
            if operation.ephemeral:
                put.lease = item.session_id


@dataclass(slots=True, kw_only=True)
class _Shared:
    """What groups of one flat transaction compare together, each once; and how long its lists are."""

    checked: set[tuple[bytes, int | None]]
    """Keys and their versions."""
    parents: set[bytes]
    """Keys of folders that must be there and not be ephemeral."""
    own: int
    """Comparisons that are of one group only."""
    writes: int
    """Nodes that are put or deleted."""

    @property
    def comparisons(self) -> int:
        return self.own + len(self.checked) + 2 * len(self.parents)


def _shared(parts: Sequence[Part]) -> _Shared:
    shared = _Shared(checked=set(), parents=set(), own=0, writes=0)
    for item in parts:
        checks = sum(isinstance(operation, Check | Absent) for operation in item.operations)
        shared.writes += len(item.operations) - checks
        if item.wanted is not None:
            shared.own += len(item.wanted)
            continue
        shared.own += len(item.operations) - checks
        if checks or item.creates:
            _share(item, shared)
    return shared


def _share(item: Part, shared: _Shared) -> None:
    made: set[bytes] = set()
    for operation, key in zip(item.operations, item.keys, strict=True):
        if isinstance(operation, Check):
            shared.checked.add((key, operation.version))
        elif isinstance(operation, Create):
            made.add(key)
            in_root = operation.path.rfind("/") == 0
            if not in_root and (folder := key.rpartition(b"/")[0]) not in made:
                shared.parents.add(folder)


def flat_outcomes(parts: Sequence[Part], answer: Any) -> tuple[Outcome, ...]:
    """What became of each group of a flat transaction that happened."""
    responses = iter(answer.responses)
    revision = answer.header.revision
    return tuple(Written(_results(item, responses, revision)) for item in parts)


def batch_request(parts: Sequence[Part], session_key: bytes, fence: Sequence[Condition], keys: Keys) -> Any:
    """One transaction with a nested one for each group."""
    message = rpc_pb2.TxnRequest()
    message.compare.append(exists(session_key))
    message.compare.extend(condition.comparison for condition in fence)
    for item in parts:
        # Also for a group that neither compares nor writes, which is a nested transaction nevertheless.
        operation = message.success.add()
        operation.request_txn.SetInParent()
        wanted = conditions(item.operations, keys) if item.creates else item.wanted
        fill(item, wanted, operation.request_txn)
        _fill_failure(item, wanted, operation.request_txn)
    look = message.failure.add().request_range
    look.key, look.keys_only, look.limit = session_key, True, 1
    return message


def clearing_request(session_key: bytes, start: bytes, end: bytes) -> Any:
    """One transaction that deletes a range of keys, if the session lives."""
    message = rpc_pb2.TxnRequest()
    message.compare.append(exists(session_key))
    deleted = message.success.add().request_delete_range
    deleted.key, deleted.range_end = start, end
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
        return Written(_results(item, iter(answer.responses), revision))
    # The conditions are made again rather than kept: failures are rare, and batches are large.
    wanted = conditions(item.operations, keys)
    looked = zip(places(wanted), answer.responses, strict=True)
    failure = first_failure(wanted, {at: _seen(response) for at, response in looked})
    # Comparisons and failure branch belong to one transaction, so one of the conditions must have failed.
    return Unknown() if failure is None else Refused(failure)


def _seen(response: Any) -> Seen:
    for found in response.response_range.kvs:
        return Seen(version=found.version, lease=found.lease)
    return Seen(version=0, lease=0)


def _results(item: Part, answers: Iterator[Any], revision: int) -> tuple[OperationResult, ...]:
    """Results of a group, whose writes have the next answers."""
    if len(item.operations) == 1 and isinstance(only := item.operations[0], Set):
        return (OperationResult(only.path, _stat_after_set(next(answers).response_put.prev_kv, revision)),)
    results: list[OperationResult] = []
    for operation in item.operations:
        match operation:
            case Check() | Absent():
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
