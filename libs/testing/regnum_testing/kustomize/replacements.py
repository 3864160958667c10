"""Replacements: a value of one object, copied into others. Pure."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from regnum_testing.kustomize.objects import KustomizeError, Object, selects


def replaced(objects: Sequence[Object], replacement: Mapping[str, Any]) -> list[Object]:
    """All objects, with the source's value where the targets say. Raises KustomizeError when either is missing."""
    _only(replacement, {"source", "targets"})
    source = dict(replacement["source"])
    path = source.pop("fieldPath")
    found = [item for item in objects if selects(source, item, pattern=False)]
    if len(found) != 1:
        raise KustomizeError(f"a replacement needs one {source}, and there are {len(found)}")
    value = _get(found[0], path, source)
    result = list(objects)
    for target in replacement["targets"]:
        _only(target, {"select", "reject", "fieldPaths", "options"})
        _only(target.get("options", {}), {"create"})
        create = target.get("options", {}).get("create", False)
        chosen = [
            index
            for index, item in enumerate(result)
            if selects(target["select"], item, pattern=False)
            and not any(selects(one, item, pattern=False) for one in target.get("reject", ()))
        ]
        for index in chosen:
            item = copy.deepcopy(result[index])
            for field in target["fieldPaths"]:
                _put(item, field, value, create=create)
            result[index] = item
    return result


def _parts(path: str) -> list[str]:
    return re.findall(r"\[[^\]]*\]|[^.\[\]]+", path)


def _get(item: Object, path: str, source: Mapping[str, Any]) -> Any:
    place: Any = item
    for part in _parts(path):
        try:
            place = _child(place, part, path)
        except KustomizeError:
            raise KustomizeError(f"{path} is missing in {source}, from where it is copied") from None
    return place


def _put(item: Object, path: str, value: Any, *, create: bool) -> None:
    *above, last = _parts(path)
    place: Any = item
    for part in above:
        place = _child(place, part, path)
    if not isinstance(place, dict) or (last not in place and not create):
        if isinstance(place, list) and last.isdigit() and int(last) < len(place):
            place[int(last)] = copy.deepcopy(value)
            return
        raise KustomizeError(f"{item['metadata']['name']} has no {path}")
    place[last] = copy.deepcopy(value)


def _child(place: Any, part: str, path: str) -> Any:
    if isinstance(place, list):
        if part.startswith("["):
            key, _, wanted = part.strip("[]").partition("=")
            for item in place:
                if item.get(key) == wanted:
                    return item
        elif part.isdigit() and int(part) < len(place):
            return place[int(part)]
    elif isinstance(place, dict) and part in place:
        return place[part]
    raise KustomizeError(f"there is no {part} of {path}")


def _only(told: Mapping[str, Any], known: set[str]) -> None:
    if unknown := set(told) - known:
        raise KustomizeError(f"replacements with {', '.join(sorted(unknown))} are not known here")
