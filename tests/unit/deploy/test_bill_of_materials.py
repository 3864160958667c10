"""What the wheel and the images are made of is what their locks say."""

from pathlib import Path

import pytest
from regnum_testing.bill_of_materials import BASE, Product, bill, main, products
from regnum_testing.image_locks import ROOT

LOCK = """\
# Made from requirements.lock
grpcio==1.85.1 \\
    --hash=sha256:{0} \\
    --hash=sha256:{1}
    # via regnum (pyproject.toml)
typing-extensions==4.16.0 ; python_version < "3.13" \\
    --hash=sha256:{0}
""".format("a" * 64, "b" * 64)
DIGEST = "c" * 64


def test_every_package_has_its_version_and_all_hashes_of_the_lock() -> None:
    made = bill(Product("regnum", "library", LOCK), version="1.2.3", base=BASE)
    components = made["components"]
    assert isinstance(components, list)
    assert [one["purl"] for one in components] == ["pkg:pypi/grpcio@1.85.1", "pkg:pypi/typing-extensions@4.16.0"]
    (reference,) = components[0]["externalReferences"]
    assert [one["content"] for one in reference["hashes"]] == ["a" * 64, "b" * 64]
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made == bill(Product("regnum", "library", LOCK), version="1.2.3", base=BASE), "the same lock, the same bytes"
    assert made["serialNumber"] != bill(Product("regnum", "library", LOCK), version="1.2.4", base=BASE)["serialNumber"]


@pytest.mark.parametrize(
    ("base", "name", "tag", "hashes"),
    [
        (BASE, "python", "3.11-slim-bookworm", None),
        (f"registry:5000/python:3.11@sha256:{DIGEST}", "registry:5000/python", "3.11", [DIGEST]),
        (f"registry:5000/python@sha256:{DIGEST}", "registry:5000/python", "latest", [DIGEST]),
    ],
)
def test_an_image_has_its_base_by_its_digest_where_it_has_one(
    base: str, name: str, tag: str, hashes: list[str] | None
) -> None:
    components = bill(Product("regnum", "container", LOCK), version="1", base=base)["components"]
    assert isinstance(components, list)
    told = components[-1]
    assert (told["type"], told["name"], told["version"]) == ("container", name, tag)
    assert (None if "hashes" not in told else [one["content"] for one in told["hashes"]]) == hashes


def test_there_is_one_for_the_wheel_and_for_each_image_and_tests_are_in_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "regnum-wheel.cdx.json",
        "regnum-image.cdx.json",
        "regnum-failovers-image.cdx.json",
    }
    assert "has no digest" in capsys.readouterr().err
    assert all("pytest==" not in one.lock and "grpcio==" in one.lock for one in products()[:2])
    assert BASE in (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
