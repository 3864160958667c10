"""docs/operations/machines.md: each service takes the command line and the variables that the page gives it."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
from regnum_service.settings import load
from regnum_testing.kustomize.overlays import SETTINGS
from regnum_testing.page_commands import blocks

ROOT: Final = Path(__file__).parents[3]
TEXT: Final = (ROOT / "docs/operations/machines.md").read_text(encoding="utf-8")
UNIT: Final = (ROOT / "deploy/systemd/regnum@.service").read_text(encoding="utf-8")


def variables(block: str) -> dict[str, str]:
    """Of a file of variables."""
    return dict(line.split("=", 1) for line in block.splitlines())


def cluster() -> dict[str, str]:
    """Those of all processes."""
    return variables(blocks(TEXT, "ini")[0])


def of(role: str) -> dict[str, str]:
    """Those of one process."""
    return next(found for block in blocks(TEXT, "ini") if f"REGNUM_{role.upper()}_ID" in (found := variables(block)))


def settings(role: str, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], flags: list[str]) -> Any:
    """What a service makes of them; a wrong one ends the process."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    module, kind = SETTINGS[role]
    return load(getattr(importlib.import_module(module), kind), flags)


@pytest.mark.parametrize("role", SETTINGS)
def test_command_line_and_variables_say_the_same(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(blocks(TEXT, "sh")).replace("\\\n", " ").splitlines()
    (flags,) = (shlex.split(line)[1:] for line in lines if line.startswith(f"regnum-{role} "))
    by_flags = settings(role, monkeypatch, cluster(), flags)
    by_variables = settings(role, monkeypatch, of(role), [])
    differing = {name for name, value in by_variables if value != getattr(by_flags, name)}
    assert differing == {"metrics_listen"}, "which the command lines leave out"


@pytest.mark.parametrize("role", SETTINGS)
def test_the_variables_of_tls_are_taken(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, own = (variables(block) for block in blocks(TEXT, "ini")[-2:])
    found = settings(role, monkeypatch, {**cluster(), **shared, **of(role), **own}, [])
    assert found.allow_plaintext_beyond_loopback is False
    assert str(found.internal_tls_ca) == shared["REGNUM_INTERNAL_TLS_CA"]


def test_the_unit_gives_brokers_the_time_that_they_are_told() -> None:
    assert re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE) == [of("broker")["REGNUM_TERMINATION_GRACE_S"]]


def test_every_folder_and_file_of_a_process_is_where_the_unit_has_it() -> None:
    assert re.findall(r"^EnvironmentFile=(.*)$", UNIT, re.MULTILINE) == [
        "/etc/regnum/cluster.env",
        "/etc/regnum/%i.env",
    ]
    folders = {role: {value for name, value in of(role).items() if name.endswith("_DIR")} for role in SETTINGS}
    assert all(folder.startswith(f"/var/lib/regnum/{role}") for role, found in folders.items() for folder in found)
