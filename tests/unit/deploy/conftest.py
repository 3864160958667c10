"""Every combination of deploy/k8s, built once."""

from pathlib import Path
from typing import Any

import pytest
from regnum_testing.kustomize import build
from regnum_testing.kustomize.overlays import COMBINATIONS, write_overlay


@pytest.fixture(scope="session", params=list(COMBINATIONS))
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def overlay(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_overlay(tmp_path_factory.mktemp("overlay"), name)


@pytest.fixture(scope="session")
def objects(overlay: Path) -> list[dict[str, Any]]:
    return build(overlay)
