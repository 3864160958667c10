"""Builds a kustomization: reads its files, and applies what they say in kustomize's order.

Resources, then generators, then components, then patches, namespace, replicas, images and replacements; a component
sees what its parent has so far. Objects that are for kustomize alone (``local-config``) are left out at the very end.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from regnum_testing.kustomize.objects import KustomizeError, Object, identity, selects
from regnum_testing.kustomize.patches import DIRECTIVE, json_patched, merged
from regnum_testing.kustomize.replacements import replaced

LOCAL: Final = "config.kubernetes.io/local-config"
"""Annotation of objects that are read here and never sent anywhere."""

CLUSTER_SCOPED: Final = frozenset({"Namespace", "PriorityClass"})
"""Kinds that have no namespace, of those that deploy/k8s has."""

KNOWN: Final = frozenset(
    {
        "apiVersion", "kind", "namespace", "resources", "configMapGenerator", "components", "patches", "replicas",
        "images", "replacements",
    }
)  # fmt: skip
"""What a kustomization may say here."""

__all__ = ["KustomizeError", "build"]


def build(folder: Path) -> list[Object]:
    """The objects of a folder with a kustomization. Raises KustomizeError."""
    return [item for item in _accumulated(folder, []) if item["metadata"].get("annotations", {}).get(LOCAL) != "true"]


def _accumulated(folder: Path, objects: list[Object]) -> list[Object]:
    """What a folder adds to, and changes of, the objects that are there."""
    told = _read(folder)
    for name in told.get("resources", ()):
        path = folder / name
        more = _accumulated(path, []) if path.is_dir() else [one for one in _documents(path.read_text("utf-8")) if one]
        objects = _with(objects, more)
    for generator in told.get("configMapGenerator", ()):
        objects = _generated(folder, generator, objects)
    for name in told.get("components", ()):
        objects = _accumulated(folder / name, objects)
    steps: Sequence[tuple[str, Callable[[Path, Any, list[Object]], list[Object]]]] = (
        ("patches", _patched),
        ("namespace", _namespaced),
        ("replicas", _counted),
        ("images", _imaged),
        ("replacements", _replaced),
    )
    for key, step in steps:
        if key in told:
            objects = step(folder, told[key], objects)
    return objects


def _read(folder: Path) -> Mapping[str, Any]:
    told: dict[str, Any] = yaml.load((folder / "kustomization.yaml").read_text("utf-8"), yaml.CSafeLoader)
    if unknown := set(told) - KNOWN:
        raise KustomizeError(f"{folder}: {', '.join(sorted(unknown))} is not known here")
    return told


def _documents(text: str) -> list[Any]:
    return list(yaml.load_all(text, yaml.CSafeLoader))


def _with(objects: list[Object], more: Sequence[Object]) -> list[Object]:
    there = {identity(item) for item in objects}
    if twice := [identity(item) for item in more if identity(item) in there]:
        raise KustomizeError(f"{twice[0]} is there twice")
    return [*objects, *more]


def _generated(folder: Path, told: Mapping[str, Any], objects: list[Object]) -> list[Object]:
    options = told.get("options", {})
    if unknown := (set(told) - {"name", "files", "literals", "options"}) | (
        set(options) - {"disableNameSuffixHash", "labels", "annotations"}
    ):
        raise KustomizeError(f"{folder}: generators with {', '.join(sorted(unknown))} are not known here")
    if not options.get("disableNameSuffixHash"):
        raise KustomizeError(f"{folder}: names with hashes are not known here; give disableNameSuffixHash")
    data = {}
    for entry in told.get("files", ()):
        key, equals, name = entry.partition("=")
        path = folder / (name if equals else key)
        data[key if equals else path.name] = path.read_text("utf-8")
    for entry in told.get("literals", ()):
        key, _, value = entry.partition("=")
        data[key] = value
    metadata = {"name": told["name"], **{key: options[key] for key in ("labels", "annotations") if key in options}}
    return _with(objects, [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}])


def _patched(folder: Path, told: Sequence[Mapping[str, Any]], objects: list[Object]) -> list[Object]:
    for entry in told:
        if unknown := set(entry) - {"path", "patch", "target"}:
            raise KustomizeError(f"{folder}: patches with {', '.join(sorted(unknown))} are not known here")
        text = entry["patch"] if "patch" in entry else (folder / entry["path"]).read_text("utf-8")
        for patch in _documents(text):
            objects = _patch(folder, patch, entry.get("target"), objects)
    return objects


def _patch(folder: Path, patch: Any, target: Mapping[str, str] | None, objects: list[Object]) -> list[Object]:
    if target is None:
        chosen = [item for item in objects if identity(item) == identity(patch)]
        if len(chosen) != 1:
            raise KustomizeError(f"{folder}: there is no {identity(patch)} to be patched")
    else:
        chosen = [item for item in objects if selects(target, item, pattern=True)]
    result = []
    for item in objects:
        if not any(item is one for one in chosen):
            result.append(item)
        elif isinstance(patch, list):
            result.append(json_patched(item, patch))
        elif patch.get(DIRECTIVE) != "delete":
            changed = merged(item, patch)
            changed["metadata"]["name"] = item["metadata"]["name"]
            result.append(changed)
    return result


def _namespaced(_folder: Path, namespace: str, objects: list[Object]) -> list[Object]:
    result = []
    for item in copy.deepcopy(objects):
        if item["kind"] == "Namespace":
            item["metadata"]["name"] = namespace
        elif item["kind"] not in CLUSTER_SCOPED:
            item["metadata"]["namespace"] = namespace
        result.append(item)
    return result


def _counted(folder: Path, told: Sequence[Mapping[str, Any]], objects: list[Object]) -> list[Object]:
    objects = copy.deepcopy(objects)
    for entry in told:
        chosen = [
            item
            for item in objects
            if item["kind"] in {"StatefulSet", "Deployment"} and item["metadata"]["name"] == entry["name"]
        ]
        if not chosen:
            raise KustomizeError(f"{folder}: there is no {entry['name']} to be counted")
        for item in chosen:
            item["spec"]["replicas"] = entry["count"]
    return objects


def _imaged(_folder: Path, told: Sequence[Mapping[str, str]], objects: list[Object]) -> list[Object]:
    objects = copy.deepcopy(objects)
    for item in objects:
        for container in _containers(item):
            name, colon, tag = container["image"].partition(":")
            for entry in told:
                if entry["name"] == name:
                    tag = entry.get("newTag", tag)
                    container["image"] = entry.get("newName", name) + (f":{tag}" if colon or tag else "")
    return objects


def _containers(value: Any) -> list[dict[str, Any]]:
    """Every container anywhere in an object."""
    if isinstance(value, list):
        return [one for item in value for one in _containers(item)]
    if not isinstance(value, dict):
        return []
    own = [one for key in ("containers", "initContainers") for one in value.get(key) or () if isinstance(one, dict)]
    return [*(one for one in own if "image" in one), *(one for item in value.values() for one in _containers(item))]


def _replaced(_folder: Path, told: Sequence[Mapping[str, Any]], objects: list[Object]) -> list[Object]:
    for replacement in told:
        objects = replaced(objects, replacement)
    return objects
