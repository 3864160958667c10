"""What the wheel and the images are made of, as CycloneDX 1.6 says it (a bill of materials, SBOM).

python -m regnum_testing.bill_of_materials DIR [--base IMAGE@sha256:...]     writes a file for each; ``make sbom``

Goals: every package with the version and the hashes of the lock that it is installed by, so that a list of known faults
can be held against it. Nothing is resolved and nothing fetched; the same lock makes the same bytes.

What is of the base image of the images (Debian, Python, Java) is not looked into: the base is one component, by the
name and, where one is given, the digest that ``make images`` took it by. Its maker publishes its bill.
"""

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from regnum_testing.image_locks import FOLDER, MAIN, ROOT, blocks, drawn_in, wanted

SPEC: Final = "1.6"
"""Version of CycloneDX."""
NAMESPACE: Final = uuid.UUID("9b1c6b0e-6a0c-5d53-8a53-6c1f6f0a2f5e")
"""Of serial numbers: each is made from what the bill says."""
RUNTIME: Final = ("services", "etcd", "zookeeper", "embedded", "spark", "s3", "bench")
"""Extras of the wheel that somebody installs to run something."""
BASE: Final = "python:3.11-slim-bookworm"
"""The base of the images where nothing else is said (``ARG BASE`` in deploy/docker)."""

_PIN: Final = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Product:
    """Something that is handed out."""

    name: str
    """``regnum``, ``regnum-failovers``."""
    kind: str
    """``library`` or ``container``."""
    lock: str
    """Its packages, as a lock has them."""

    @property
    def file(self) -> str:
        """Name of its bill."""
        return f"{self.name}-{'wheel' if self.kind == 'library' else 'image'}.cdx.json"


def products() -> tuple[Product, ...]:
    """The wheel and both images, by the locks of the checkout."""
    lock = (ROOT / MAIN).read_text(encoding="utf-8")
    packages = blocks(lock)
    kept = drawn_in(packages, wanted(_project(), RUNTIME))
    wheel = "\n".join(packages[name] for name in sorted(kept))
    images = {"regnum": "services.lock", "regnum-failovers": "failovers.lock"}
    return (
        Product("regnum", "library", wheel),
        *(
            Product(name, "container", (ROOT / FOLDER / file).read_text(encoding="utf-8"))
            for name, file in images.items()
        ),
    )


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def bill(product: Product, *, version: str, base: str) -> dict[str, object]:
    """The bill of a product. Pure.

    Args:
        product: what it is of.
        version: of the product.
        base: of an image, with its digest where it has one.
    """
    components = [*_packages(product.lock), *([_image(base)] if product.kind == "container" else [])]
    itself = {
        "type": product.kind,
        "bom-ref": f"{product.name}@{version}",
        "name": product.name,
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    content = json.dumps([itself, components], sort_keys=True)
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
        "dependencies": [{"ref": itself["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _packages(lock: str) -> Iterator[dict[str, object]]:
    for name, text in blocks(lock).items():
        pinned = _PIN.match(text)
        if pinned is None:
            raise ValueError(f"{name} has no version in its lock")
        address = f"pkg:pypi/{name}@{pinned[2]}"
        # Of all files of the release: which one is installed depends on the machine.
        hashes = [_sha256(one) for one in _HASH.findall(text)]
        yield {
            "type": "library",
            "bom-ref": address,
            "name": name,
            "version": pinned[2],
            "purl": address,
            "externalReferences": [{"type": "distribution", "url": address, "hashes": hashes}],
        }


def _image(base: str) -> dict[str, object]:
    named, _, digest = base.partition("@sha256:")
    name, _, tag = named.rpartition(":") if ":" in named.rpartition("/")[2] else (named, "", "latest")
    found: dict[str, object] = {"type": "container", "bom-ref": f"base:{base}", "name": name, "version": tag}
    return found if not digest else found | {"hashes": [_sha256(digest)]}


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


def main(given: Sequence[str]) -> int:
    """Exit status of the tool."""
    parser = argparse.ArgumentParser(prog="make sbom", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", default=BASE, help="base of the images, as make images was given it")
    told = parser.parse_args(given)
    told.folder.mkdir(parents=True, exist_ok=True)
    version = str(_project()["version"])
    if "@sha256:" not in told.base:
        sys.stderr.write(
            f"the base image {told.base} has no digest: its bill says a name, which may mean another one\n"
        )
    for product in products():
        path = told.folder / product.file
        path.write_text(json.dumps(bill(product, version=version, base=told.base), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
