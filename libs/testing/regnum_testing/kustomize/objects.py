"""Kubernetes objects as plain values, and which of them a selector means. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

Object = dict[str, Any]
"""One object, as YAML has it."""

SELECTORS: Final = frozenset({"kind", "name", "labelSelector"})


class KustomizeError(Exception):
    """A kustomization that does not build, or uses what is not here. The message says which and what."""


def identity(item: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name: what an object is known by; all are of one namespace."""
    return item["kind"], item["metadata"]["name"]


def selects(selector: Mapping[str, str], item: Mapping[str, Any], *, pattern: bool) -> bool:
    """Whether a selector means an object.

    Args:
        selector: ``kind``, ``name``, ``labelSelector`` (``key=value`` or ``key``); what is not there means all.
        item: the object.
        pattern: whether kind and name are regular expressions for the whole, as in targets of patches.
    """
    if unknown := set(selector) - SELECTORS:
        raise KustomizeError(f"selectors by {', '.join(sorted(unknown))} are not known here")
    for key, found in zip(("kind", "name"), identity(item), strict=True):
        wanted = selector.get(key)
        if wanted is not None and not (re.fullmatch(wanted, found) if pattern else wanted == found):
            return False
    labels = item["metadata"].get("labels", {})
    wanted = selector.get("labelSelector")
    if wanted is None:
        return True
    key, equals, value = wanted.partition("=")
    return key in labels and (not equals or labels[key] == value)
