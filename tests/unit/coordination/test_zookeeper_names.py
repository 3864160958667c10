"""The port's paths on a ZooKeeper server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_coordination.drivers.zookeeper.names import ServerNames

_NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in {".", ".."}
)


@pytest.mark.parametrize("path", ["/brokers/topics/t-1.x_2", "/config/users/%40x", "/a b/日本/ü"])
def test_usual_paths_stand_there_as_they_are(path: str) -> None:
    assert ServerNames("").path(path) == path
    assert ServerNames("/regnum").path(path) == "/regnum" + path


def test_the_root() -> None:
    assert (ServerNames("").path("/"), ServerNames("/r").path("/")) == ("/", "/r")


def test_what_servers_refuse_is_written_otherwise() -> None:
    names = ServerNames("")
    assert names.path("/\n") == "/\uff0500000A"
    assert names.path("/\U0001f980") == "/\uff0501F980"
    assert names.path("/\uff05") == "/\uff0500FF05"


@given(_NAMES)
def test_every_name_comes_back(name: str) -> None:
    written = ServerNames("").path("/" + name)
    assert ServerNames("").children("/d", [written[1:]]) == (name,)
    assert not any(
        ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F or 0xD800 <= ord(c) <= 0xF8FF or ord(c) >= 0xFFF0 for c in written
    )


@given(st.sets(_NAMES))
def test_children_are_sorted_as_the_port_shows_them(names: set[str]) -> None:
    written = [ServerNames("/r").path("/" + name)[3:] for name in names]
    assert ServerNames("/r").children("/", written) == tuple(sorted(names))


def test_what_a_hand_wrote_with_our_sign_is_shown_as_it_is() -> None:
    assert ServerNames("").children("/d", ["\uff05", "\uff05FFFFFF", "\uff0512"]) == (
        "\uff05",
        "\uff0512",
        "\uff05FFFFFF",
    )


def test_the_servers_own_folder_is_hidden_in_the_root_alone() -> None:
    assert ServerNames("").children("/", ["zookeeper", "a"]) == ("a",)
    assert ServerNames("").children("/x", ["zookeeper"]) == ("zookeeper",)
    assert ServerNames("/r").children("/", ["zookeeper"]) == ("zookeeper",)
