"""ZooKeeper URLs."""

from pathlib import Path

import pytest
from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.zookeeper.address import ZooKeeperAddress


def test_one_endpoint_and_defaults() -> None:
    address = ZooKeeperAddress.parse("zookeeper://store")
    assert address == ZooKeeperAddress(endpoints=(("store", 2181),), chroot="", credentials=Credentials())
    assert address.hosts == "store:2181"


def test_everything() -> None:
    address = ZooKeeperAddress.parse("zookeeper://a:1,[::1]:2,c/r/s?ca=/ca&user=anna&password_file=/pw")
    assert address.endpoints == (("a", 1), ("::1", 2), ("c", 2181))
    assert (address.chroot, address.hosts) == ("/r/s", "a:1,[::1]:2,c:2181")
    assert address.credentials == Credentials(ca=Path("/ca"), user="anna", password_file=Path("/pw"))


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://",
        "zookeeper:///r",
        "zookeeper://a:x",
        "zookeeper://a:0",
        "zookeeper://a:70000",
        "zookeeper://[::1",
        "zookeeper://a,,b",
        "zookeeper://a/b//c",
        "zookeeper://a/b/../c",
        "zookeeper://a?x=1",
        "zookeeper://a?password=secret",
        "zookeeper://a?password_file=secret",
        "zookeeper://a..b",
        "zookeeper://a?user=anna",
        "zookeeper://anna:secret@a",
        "zookeeper://a#b",
    ],
)
def test_malformed_addresses(url: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the messages differ
        ZooKeeperAddress.parse(url)
    assert "secret" not in str(caught.value)
