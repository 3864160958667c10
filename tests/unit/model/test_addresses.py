"""Host and port, together and apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.nodes import Address, BrokerNode, MalformedNodeError
from regnum_model.nodes.processes import is_anywhere, joined, split


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("broker-1.regnum:9092", "broker-1.regnum", 9092),
        ("[::1]:19092", "::1", 19092),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1),
        # As releases before wrote it.
        ("::1:19092", "::1", 19092),
    ],
)
def test_apart(text: str, host: str, port: int) -> None:
    assert split(text) == (host, port)
    assert Address.parse(text) == Address(host=host, port=port)
    assert split(joined(host, port)) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", ":1", "h", "h:", "h:0", "h:65536", "h:x", "h:\u0661", "a:b:1", "[::1]", "[::1]:", "[::1", "::1]:1"),
        *("[h]:1", "[127.0.0.1]:1", "[]:1", "[[::1]]:1", "[::1]x:1", "[::1]:1:1", "h[1]:1", "2001:db8::1::2:1"),
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split(text)
    with pytest.raises(MalformedNodeError):
        Address.parse(text)


def test_a_port_that_is_not_said() -> None:
    assert split("h", default_port=7) == ("h", 7)
    assert split("[::1]", default_port=7) == ("::1", 7)
    for text in ("h:", "[::1]:", "[::1", ""):
        with pytest.raises(ValueError, match="is not host:port"):
            split(text, default_port=7)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_any_address_comes_back(address: object, port: int) -> None:
    assert split(joined(str(address), port)) == (str(address), port)
    assert joined(str(address), port).startswith("[") is (":" in str(address))


def test_addresses_in_the_store_stand_in_brackets() -> None:
    node = BrokerNode.decode(
        b'{"version":1,"incarnation":"i","registration":0,"rack":null,"directories":{"d":"l"},'
        b'"listeners":{"client":"::1:9092","internal":"[::1]:9093"}}'
    )
    assert b'"client":"[::1]:9092"' in node.encode()
    assert BrokerNode.decode(node.encode()) == node


def test_all_addresses() -> None:
    assert all(map(is_anywhere, ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")))  # noqa: S104 - no listener
    assert not any(map(is_anywhere, ("::1", "127.0.0.1", "h", "")))
