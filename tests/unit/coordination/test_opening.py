"""The choice of a driver by URL."""

import subprocess
import sys

import pytest
from regnum_coordination import open_store
from regnum_coordination.drivers.memory import server_named


async def test_memory_servers_are_shared_by_name() -> None:
    one, two = await open_store("memory://opening-a"), await open_store("memory://opening-a")
    other = await open_store("memory://opening-b")
    await one.create("/x", b"")
    assert await two.exists("/x") is not None
    assert await other.exists("/x") is None
    assert set(server_named("opening-a").sessions()) == {one.session_id, two.session_id}


@pytest.mark.parametrize("url", ["", "127.0.0.1:2379", "consul://a", "zk://a", "http://a"])
async def test_unknown_schemes_name_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match="etcd://host:port"):
        await open_store(url)


@pytest.mark.parametrize(
    "url", ["memory://", "etcd://", "etcd://:1", "etcd://h:x", "etcd://h?x=1", "etcd://h/a//b", "zookeeper://"]
)
async def test_malformed_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="use "):
        await open_store(url)


async def test_time_outs_that_cannot_work() -> None:
    with pytest.raises(ValueError, match="at least 5 s"):
        await open_store("etcd://127.0.0.1:1", session_timeout_s=4.9)
    with pytest.raises(ValueError, match="above 0 s"):
        await open_store("memory://x", session_timeout_s=0)


def test_a_missing_library_gives_the_install_command() -> None:
    code = (
        "import asyncio, sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'etcd3': raise ModuleNotFoundError(\"No module named 'etcd3'\", name='etcd3')\n"
        "sys.meta_path.insert(0, Without())\n"
        "from regnum_coordination import open_store\n"
        "asyncio.run(open_store('etcd://127.0.0.1:1'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'regnum[etcd]'" in done.stderr


def test_the_port_loads_no_driver() -> None:
    code = (
        "import sys, regnum_coordination; print([n for n in sys.modules if 'drivers' in n or n in ('grpc', 'etcd3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]"
