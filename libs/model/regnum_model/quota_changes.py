"""What a change of quotas makes of an entity's node, and why a change cannot be made. Pure.

An entity is changed whole or not at all; entities of one call are independent of one another. Limits that are not
named stay, and so do keys of other quotas in the same node.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regnum.types.v1 import errors_pb2

from regnum_model.mutations import digest_of
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import KEYS, LIMIT_MAX, QuotaEntity, QuotaNode, check_limit
from regnum_model.rejection import Rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """One limit set or removed."""

    key: str
    """Which limit, as given."""
    value: float | None
    """The limit; None removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChange:
    """What a client wants for one entity."""

    entity: QuotaEntity
    """Whose quota."""
    limits: tuple[LimitChange, ...]
    """Limits to set or to remove."""

    @property
    def digest(self) -> str:
        """Of what is wanted, for repeats (safety rule S20)."""
        limits = sorted((one.key, "" if one.value is None else limit_text(one.value)) for one in self.limits)
        return digest_of("alter client quotas", (part for limit in limits for part in limit))


def repeated_entities(changes: Sequence[EntityChange | Rejection]) -> frozenset[QuotaEntity]:
    """Entities that a call names more than once."""
    counted = Counter(change.entity for change in changes if isinstance(change, EntityChange))
    return frozenset(entity for entity, count in counted.items() if count > 1)


def check_change(change: EntityChange, *, repeated: frozenset[QuotaEntity]) -> Rejection | None:  # noqa: PLR0911 - each refusal has its own line
    """Why a change can never be made; None if it may."""
    entity = change.entity
    try:
        _ = entity.path
    except ValueError as error:
        return _reject(f"{error}; give another name")
    if entity in repeated:
        return _reject(f"{entity} stands twice in the request; name all its limits in one place")
    if not change.limits:
        return _reject(f"no limit is named for {entity}; name one of {_known_keys()} to set or to remove")
    counted = Counter(limit.key for limit in change.limits)
    for limit in change.limits:
        if limit.key not in KEYS:
            return _reject(f"there is no limit {limit.key!r}; choose from {_known_keys()}")
        if limit.key not in entity.keys:
            return _reject(f"{limit.key} is measured for users and client ids; set it for one, or for every one")
        if counted[limit.key] > 1:
            return _reject(f"{limit.key} stands twice for {entity}; give it once")
        if limit.value is None:
            continue
        try:
            check_limit(limit.key, limit.value)
        except MalformedNodeError as error:
            return _reject(f"{error}; give one up to {LIMIT_MAX:g}, or remove the limit")
    return None


def changed_node(node: QuotaNode, limits: Sequence[LimitChange]) -> QuotaNode:
    """The node after a change that ``check_change`` let pass."""
    config = dict(node.config)
    for limit in limits:
        if limit.value is None:
            config.pop(limit.key, None)
        else:
            config[limit.key] = limit_text(limit.value)
    return QuotaNode(config=config)


def limit_text(value: float) -> str:
    """A limit as a person would write it: 5 and not 5.0; reads back as the same number."""
    return str(int(value)) if value.is_integer() else repr(value)


def _known_keys() -> str:
    return ", ".join(sorted(KEYS))


def _reject(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)
