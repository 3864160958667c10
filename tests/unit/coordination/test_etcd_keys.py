"""Paths as keys, and the hops from child to child."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_coordination.drivers.etcd.keys import Keys, after, child_name, visible

NAMES = st.text(alphabet=st.sampled_from("ab-./0~\x01é"), min_size=1, max_size=3).filter(
    lambda name: "/" not in name and name not in {".", ".."}
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def test_keys_are_paths_below_the_prefix() -> None:
    keys = Keys("/p")
    assert keys.key("/a/b") == b"/p/a/b"
    assert keys.below("/a") == (b"/p/a/", b"/p/a0")
    assert keys.below("/") == (b"/p/", b"/p0")
    assert Keys("").below("/") == (b"/", b"0")
    assert Keys("").session(0xAB) == b"/.sessions/00000000000000ab"
    assert keys.sequence("/") == b"/p/.sequences"


def test_child_names() -> None:
    assert child_name(b"/a/b", b"/a/") == "b"
    assert child_name(b"/a/b/c", b"/a/") is None
    assert child_name(b"/a/\xff", b"/a/") is None


@pytest.mark.parametrize("rest", [b"", b".", b"..", b"x\0", b"\0"])
def test_a_key_that_no_path_can_name_is_no_child(rest: bytes) -> None:
    """``etcdctl put /config/users/. x``: whoever was shown the name would ask for a path that is refused."""
    assert child_name(b"/a/" + rest, b"/a/") is None


def test_reserved_names_are_hidden_at_the_root_only() -> None:
    assert visible({".sessions", ".sequences", "b", "a"}, "/") == ("a", "b")
    assert visible({".sessions"}, "/x") == (".sessions",)


@given(st.sets(PATHS, max_size=30))
def test_hopping_finds_exactly_the_children(paths: set[str]) -> None:
    """One key at a time, as if every page held a single key."""
    folder = b"/top/"
    stored = sorted(f"/top/{path}".encode() for path in paths)
    cursor, found = folder, set()
    reads = 0
    while (key := next((key for key in stored if key >= cursor), None)) is not None:
        reads += 1
        if (name := child_name(key, folder)) is not None:
            found.add(name)
        cursor = after(key, folder)
    assert found == {path for path in paths if "/" not in path}
    assert reads <= 2 * len({path.partition("/")[0] for path in paths})
