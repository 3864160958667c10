"""etcd URLs."""

from pathlib import Path

import pytest
from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.etcd.address import EtcdAddress, one_family


def test_one_endpoint_and_defaults() -> None:
    address = EtcdAddress.parse("etcd://store")
    assert address == EtcdAddress(
        endpoints=(("store", 2379),), prefix="", max_txn_ops=128, server_name="store", credentials=Credentials()
    )
    assert (address.target, address.unresolved) == ("store:2379", ())


def test_everything() -> None:
    address = EtcdAddress.parse("etcd://10.0.0.1:1,10.0.0.2:2,10.0.0.3/a/b?max_txn_ops=2000")
    assert address.endpoints == (("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 2379))
    assert (address.prefix, address.max_txn_ops) == ("/a/b", 2000)
    assert address.target == "ipv4:10.0.0.1:1,10.0.0.2:2,10.0.0.3:2379"


def test_names_in_a_list_have_to_be_resolved() -> None:
    assert EtcdAddress.parse("etcd://a:1,10.0.0.2:2,b:3").unresolved == ("a", "b")


def test_a_list_of_resolved_members_is_of_one_family() -> None:
    assert one_family([(["::1", "10.0.0.1"], 1), (["fd00::2"], 2), (["10.0.0.3"], 3)]) == (
        ("10.0.0.1", 1),
        ("10.0.0.3", 3),
    )
    assert one_family([(["fd00::1"], 1), (["fd00::2", "fd00::3"], 2)]) == (("fd00::1", 1), ("fd00::2", 2))
    assert one_family([]) == ()


def test_ipv6() -> None:
    assert EtcdAddress.parse("etcd://[::1]:7").target == "[::1]:7"
    assert EtcdAddress.parse("etcd://[::1]:7,[::2]").target == "ipv6:[::1]:7,[::2]:2379"


def test_tls_and_user() -> None:
    address = EtcdAddress.parse("etcd://a:1,b:2/p?ca=/ca&user=me&password_file=/word&server_name=etcd.example")
    assert address.credentials == Credentials(ca=Path("/ca"), user="me", password_file=Path("/word"))
    assert (address.server_name, address.prefix) == ("etcd.example", "/p")
    assert EtcdAddress.parse("etcd://a:1,b:2?ca=/ca").server_name == "a"


@pytest.mark.parametrize("url", ["etcd://me:sesame@h", "etcd://h?password=sesame", "etcd://h:x?user=sesame&user=x"])
def test_what_may_be_a_secret_is_in_no_message(url: str) -> None:
    with pytest.raises(ValueError, match="use etcd://") as caught:
        EtcdAddress.parse(url)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "/"])
def test_no_prefix(path: str) -> None:
    assert EtcdAddress.parse(f"etcd://h:1{path}").prefix == ""


@pytest.mark.parametrize(
    "url",
    [
        "etcd://",
        "memory://h",
        "etcd://h:",
        "etcd://h:0",
        "etcd://h:65536",
        "etcd://h:1,",
        "etcd://user@h:1",
        "etcd://h:1#x",
        "etcd://[::1",
        "etcd://a:b:1",
        "etcd://a..b,h",
        "etcd://h/../x",
        "etcd://h?max_txn_ops=8",
        "etcd://h?max_txn_ops=many",
        "etcd://h?other=1",
    ],
)
def test_malformed(url: str) -> None:
    with pytest.raises(ValueError, match=r"etcd|port|IPv6"):
        EtcdAddress.parse(url)
