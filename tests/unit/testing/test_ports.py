"""Ports for servers of tests."""

from regnum_testing.ports import unused_port


def test_nobody_is_given_a_port_that_another_one_is_about_to_bind() -> None:
    """Of some hundred fake clusters in a run, one had two servers of one fake cluster at the same port."""
    ports = [unused_port() for _ in range(2_000)]
    assert len(set(ports)) == len(ports)
