"""What a client has to install: little, and the SDK and every command come up with it alone."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

from regnum_testing.image_locks import MAIN, ROOT, blocks, drawn_in, normalised, wanted

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLIENT = drawn_in(blocks((ROOT / MAIN).read_text(encoding="utf-8")), wanted(PROJECT, ()))
"""Packages that an installation without extras draws in."""

WITHOUT_THE_REST = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import regnum_client
for found in pkgutil.walk_packages(regnum_client.__path__, "regnum_client."):
    importlib.import_module(found.name)
for name in regnum_client.__all__:
    getattr(regnum_client, name)
from regnum_client.sync import Admin, Consumer, Producer
import regnum_local.lifecycle
from regnum_client.command import application
application()
"""


def run(absent: set[str], program: str = WITHOUT_THE_REST) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"absent = {sorted(absent)!r}\n{program}"], capture_output=True, text=True, check=False
    )


def test_a_client_draws_in_few_packages() -> None:
    assert {"grpcio", "protobuf", "typer"} <= CLIENT
    assert len(CLIENT) <= 27
    servers = {normalised(re.split(r"[\[<>=]", line)[0]) for line in PROJECT["optional-dependencies"]["services"]}
    assert not CLIENT & (servers - {"regnum"})


def test_the_sdk_and_every_command_come_up_with_a_clients_packages_alone() -> None:
    names = packages_distributions()
    ours = {name for name, owners in names.items() if "regnum" in map(normalised, owners)}
    absent = {
        name
        for name, owners in names.items()
        if not CLIENT & set(map(normalised, owners)) and name not in ours and not name.startswith(("_", "regnum"))
    }
    assert {"structlog", "grpc_health", "pydantic_settings", "etcd3"} <= absent
    ran = run(absent)
    assert ran.returncode == 0, ran.stderr


def test_what_is_absent_is_missed_where_it_is_needed() -> None:
    ran = run({"structlog"}, WITHOUT_THE_REST + "import regnum_service.logs\n")
    assert ran.returncode == 1
    assert "No module named 'structlog'" in ran.stderr
