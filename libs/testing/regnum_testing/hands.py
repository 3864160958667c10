"""A person's hand in the store: reads and writes past all sessions, checks and versions, as the store's tool does."""

import asyncio
from abc import ABC, abstractmethod
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from regnum_testing.etcd_process import etcd_binary


class Hand(ABC):
    """Paths as they are in the store; contents are text."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        return None

    @abstractmethod
    async def put(self, path: str, content: str) -> None:
        """Write a node, whether or not there is one."""

    @abstractmethod
    async def get(self, path: str) -> str | None:
        """Content of a node; None when there is none."""

    @abstractmethod
    async def delete(self, path: str) -> None:
        """Delete a node."""

    @abstractmethod
    async def delete_tree(self, path: str) -> None:
        """Delete a node and all that is below it."""


class EtcdctlHand(Hand):
    """etcdctl. Its put takes a lease away from a node that has one."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    async def put(self, path: str, content: str) -> None:
        """``etcdctl put``."""
        await self._run("put", "--", path, content)

    async def get(self, path: str) -> str | None:
        """``etcdctl get``."""
        answer = await self._run("get", "--", path)
        return None if not answer else answer.split("\n", 1)[1].removesuffix("\n")

    async def delete(self, path: str) -> None:
        """``etcdctl del``."""
        await self._run("del", path)

    async def delete_tree(self, path: str) -> None:
        """``etcdctl del --prefix``."""
        await self._run("del", "--prefix", path)

    async def _run(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(str(etcd_binary().with_name("etcdctl")), f"--endpoints={self._endpoint}"),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await process.communicate()
        assert process.returncode == 0, error.decode()
        return out.decode()


class ZooKeeperHand(Hand):
    """A ZooKeeper client without a version in any request, as zkCli sends them: a write keeps the node's owner."""

    def __init__(self, endpoint: str) -> None:
        self._client = KazooClient(hosts=endpoint)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._client.start)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await asyncio.to_thread(self._client.stop)
        await asyncio.to_thread(self._client.close)

    async def put(self, path: str, content: str) -> None:
        """``set``, or ``create`` where there is nothing."""
        try:
            await asyncio.to_thread(self._client.set, path, content.encode())
        except NoNodeError:
            try:
                await asyncio.to_thread(self._client.create, path, content.encode())
            except NodeExistsError:
                await asyncio.to_thread(self._client.set, path, content.encode())

    async def get(self, path: str) -> str | None:
        """``get``."""
        try:
            data, _ = await asyncio.to_thread(self._client.get, path)
        except NoNodeError:
            return None
        return str(data.decode())

    async def delete(self, path: str) -> None:
        """``delete``."""
        await asyncio.to_thread(self._client.delete, path)

    async def delete_tree(self, path: str) -> None:
        """``deleteall``."""
        await asyncio.to_thread(self._client.delete, path, recursive=True)


def hand_for(url: str) -> Hand:
    """The hand for the store at a URL of one endpoint and without a prefix."""
    scheme, _, rest = url.partition("://")
    endpoint = rest.partition("?")[0].partition("/")[0]
    return EtcdctlHand(endpoint) if scheme == "etcd" else ZooKeeperHand(endpoint)
