"""Rules as nodes: what is written is read, and what people break is no rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import (
    RESOURCE_NAME_MAX,
    Entry,
    InvalidAclError,
    PatternType,
    Permission,
    ResourcePattern,
)
from regnum_model.acls.nodes import RULES_MAX, decode_rules, encode_rules, path_of, pattern_at
from regnum_model.nodes import MalformedNodeError

ORDERS = ResourcePattern(type=ResourceType.TOPIC, name="orders")
READ = Entry(principal="User:a", host="*", operation=Operation.READ, permission=Permission.ALLOW)


@given(st.text(min_size=1, max_size=RESOURCE_NAME_MAX), st.sampled_from(PatternType), st.sampled_from(ResourceType))
def test_a_pattern_is_found_again_from_its_path_whatever_its_name(
    name: str, kind: PatternType, type: ResourceType
) -> None:
    pattern = ResourcePattern(type=type, name=name, pattern=kind)
    try:
        path = path_of(pattern)
    except InvalidAclError:
        assert not name.isprintable()
        return
    assert path.count("/") == 4
    assert path.isascii()
    assert pattern_at(path) == pattern


@pytest.mark.parametrize("name", [".", "..", "*", "a/b", "%", "ü", "a b"])
def test_names_with_a_meaning_in_paths_have_none(name: str) -> None:
    path = path_of(ResourcePattern(type=ResourceType.GROUP, name=name))
    assert path.rpartition("/")[2] not in {".", ".."}
    assert pattern_at(path).name == name


@pytest.mark.parametrize(
    "path",
    [
        "/acl/literal/topic",
        "/acl/literal/topic/a/b",
        "/acl/literal/subject/a",
        "/acl/regex/topic/a",
        "/acl/literal/topic/*",
        "/acl/literal/topic/%ff",
        "/acl/literal/topic/",
        "/other/literal/topic/a",
        "/acl/literal/TOPIC/a",
    ],
)
def test_a_path_that_we_do_not_write_is_no_pattern(path: str) -> None:
    with pytest.raises(MalformedNodeError):
        pattern_at(path)


def test_rules_are_read_as_they_were_written_and_beside_the_log_of_mutations() -> None:
    other = Entry(principal="User:*", host="10.0.0.1", operation=Operation.ALL, permission=Permission.DENY)
    data = encode_rules([other, READ])
    assert decode_rules(ORDERS, data) == {READ, other}
    assert encode_rules([READ, other]) == data
    assert decode_rules(ORDERS, data[:-1] + b',"mutations":[{"id":"x"}]}') == {READ, other}
    assert decode_rules(ORDERS, b'{"version":1}') == decode_rules(ORDERS, b"") == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"junk",
        b"\xff",
        b"[]",
        b'{"rules":[]}',
        b'{"version":2,"rules":[]}',
        b'{"version":1,"rules":{}}',
        b'{"version":1,"rules":[1]}',
        b'{"version":1,"rules":[{"principal":"User:a","host":"*","operation":"READ"}]}',
        b'{"version":1,"rules":[{"principal":7,"host":"*","operation":"READ","permission":"ALLOW"}]}',
        b'{"version":1,"rules":[{"principal":"User:a","host":"*","operation":"FLY","permission":"ALLOW"}]}',
        b'{"version":1,"rules":[{"principal":"User:a","host":"*","operation":["READ"],"permission":"ALLOW"}]}',
        b'{"version":1,"rules":[{"principal":"alice","host":"*","operation":"READ","permission":"ALLOW"}]}',
        b'{"version":1,"rules":[{"principal":"User:a","host":"localhost","operation":"READ","permission":"DENY"}]}',
        # A caller from there is known as 10.0.0.1: such a rule would never count.
        b'{"version":1,"rules":[{"principal":"User:a","host":"::ffff:a00:1","operation":"READ","permission":"DENY"}]}',
        b"[" * 100_000,
        b'{"version":' + b"9" * 5_000 + b"}",
    ],
)
def test_one_wrong_rule_makes_the_whole_node_unreadable(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        decode_rules(ORDERS, data)


def test_a_node_with_too_many_rules_is_unreadable() -> None:
    entries = [
        Entry(principal=f"User:{number}", host="*", operation=Operation.READ, permission=Permission.ALLOW)
        for number in range(RULES_MAX + 1)
    ]
    with pytest.raises(MalformedNodeError, match="at most"):
        decode_rules(ORDERS, encode_rules(entries))
    assert len(decode_rules(ORDERS, encode_rules(entries[:-1]))) == RULES_MAX
