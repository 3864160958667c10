"""Strategic merge and JSON patches. Pure: objects come in and go out."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from regnum_testing.kustomize.objects import KustomizeError

DIRECTIVE: Final = "$patch"
"""``$patch: delete`` in a map takes what it is merged with away."""

MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "topologySpreadConstraints": "topologyKey",
}
"""Lists that are merged, by what their items are known by; any other list of a patch replaces the one that is there. A
list of ports would be merged, too: patches that need it are refused until it is here."""


def merged(target: Any, patch: Any, *, key: str = "") -> Any:
    """A strategic merge: maps by key, lists as ``MERGE_KEYS`` says, null takes away.

    Items of a merged list that the patch names come first, in the patch's order, as with kustomize.
    """
    if key == "ports":
        raise KustomizeError("patches of ports are not known here; patch them by JSON")
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        result = dict(target)
        for name, value in patch.items():
            if value is None:
                result.pop(name, None)
            else:
                result[name] = merged(result.get(name), value, key=name)
        return result
    if isinstance(patch, list) and key in MERGE_KEYS and isinstance(target, list):
        return _merged_list(target, patch, MERGE_KEYS[key])
    return copy.deepcopy(patch)


def _merged_list(target: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], by: str) -> list[Any]:
    there = {item[by]: item for item in target}
    named = {item[by] for item in patch}
    kept = [merged(there.get(item[by]), item) for item in patch if item.get(DIRECTIVE) != "delete"]
    return [*kept, *(item for item in target if item[by] not in named)]


def json_patched(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """A JSON patch (RFC 6902) of add, replace, remove and test. Raises KustomizeError."""
    document = copy.deepcopy(target)
    for operation in operations:
        *above, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].removeprefix("/").split("/")
        )
        place = document
        for part in above:
            place = _step(place, part, operation["path"])
        _apply(place, last, operation)
    return document


def _step(place: Any, part: str, path: str) -> Any:
    try:
        return place[int(part)] if isinstance(place, list) else place[part]
    except (KeyError, IndexError, ValueError):
        raise KustomizeError(f"{path}: there is no {part}") from None


def _apply(place: Any, last: str, operation: Mapping[str, Any]) -> None:
    op, path = operation["op"], operation["path"]
    if op == "test":
        if _step(place, last, path) != operation["value"]:
            raise KustomizeError(f"{path} is not {operation['value']!r}")
        return
    if op == "add":
        value = copy.deepcopy(operation["value"])
        if isinstance(place, list):
            place.insert(len(place) if last == "-" else int(last), value)
        else:
            place[last] = value
        return
    if op not in {"replace", "remove"}:
        raise KustomizeError(f"the operation {op} of JSON patches is not known here")
    _step(place, last, path)
    at: Any = int(last) if isinstance(place, list) else last
    if op == "remove":
        del place[at]
    else:
        place[at] = copy.deepcopy(operation["value"])
