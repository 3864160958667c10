"""Names that the shell completes."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from regnum_client.command import application
from regnum_client.commands.habits.completing import group_names, process_names, topic_names
from regnum_local.cluster import PLAN
from regnum_local.files import write_json
from regnum_local.identity import ProcessIdentity
from regnum_local.plan import EMPTY, Role, grow
from regnum_local.profile import Profile, write_profile
from regnum_testing.fake_cluster import FakeCluster
from typer.main import get_command


def _typed(bootstrap: str) -> Any:
    """The line so far."""
    return SimpleNamespace(params={"bootstrap": bootstrap})


async def test_topics_and_groups_of_a_cluster() -> None:
    async with FakeCluster() as cluster:
        for name in ("orders", "orders.dead", "payments", "__internal"):
            cluster.create(name)

        async def offered(names: Callable[[Any, str], list[str]], begin: str) -> list[str]:
            return await asyncio.to_thread(names, _typed(cluster.bootstrap), begin)

        assert await offered(topic_names, "ord") == ["orders", "orders.dead"]
        assert await offered(topic_names, "") == ["orders", "orders.dead", "payments"]
        assert await offered(topic_names, "__") == ["__internal"]
        assert await offered(group_names, "") == []


def test_processes_of_the_last_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGNUM_PROFILE", str(tmp_path / "profile.json"))
    assert process_names(_typed(""), "") == []
    ports = iter(range(15_000, 16_000))
    plan = grow(
        EMPTY, brokers=2, elections=1, store=Role.ETCD, is_free=lambda _port: True, choose=lambda _: next(ports)
    )
    write_json(tmp_path / PLAN, plan.to_json())
    launcher = ProcessIdentity(pid=1, start_ticks=1, boot_id="a")
    write_profile(Profile(bootstrap=(), elections=(), coordination="", data_dir=tmp_path, launcher=launcher))
    assert process_names(_typed(""), "") == ["etcd", "election-1", "broker-1", "broker-2"]
    assert process_names(_typed(""), "br") == ["broker-1", "broker-2"]


def _arguments(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _arguments(below, f"{path} {name}")
    yield from ((f"{path} {one.metavar}", one) for one in command.params if one.param_type_name == "argument")


def test_every_argument_that_is_a_name_of_the_cluster_is_completed() -> None:
    names = {place: one for place, one in _arguments(get_command(application()), "regnum") if _is_name(one.metavar)}
    assert len(names) > 20
    assert [place for place, one in names.items() if one._custom_shell_complete is None] == []


def _is_name(metavar: str | None) -> bool:
    return (metavar or "").strip("[].") in {"TOPIC", "GROUP"}
