"""Patterns of topic names: they mean what they mean elsewhere, and no name takes long."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_client.consumer.topics.patterns import STATES_MAX, PatternError, TopicPattern

ATOMS = st.sampled_from(["a", "b", "-", ".", "\\.", "[ab]", "[^a]", "[a-c_]", "\\d", "\\w", "0"])
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "{0}"])


def pieces(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.tuples(st.sampled_from(["(", "(?:"]), inner, st.just(")"), REPEATS).map("".join)
    return st.lists(st.one_of(st.tuples(ATOMS, REPEATS).map("".join), grouped), min_size=1, max_size=3).map("".join)


PATTERNS = st.recursive(
    st.tuples(ATOMS, REPEATS).map("".join),
    lambda inner: st.one_of(pieces(inner), st.lists(inner, min_size=1, max_size=3).map("|".join)),
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(PATTERNS, st.text("abc-._01A", max_size=8))
def test_a_pattern_means_what_it_means_in_python(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) is (re.fullmatch(pattern, name) is not None), (pattern, name)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a*)*b", "(a|a)*b", "(.*)*.*.*.*.*b", "a?" * 60 + "a" * 60, "(a|aa)+b", "((((((((a+)+)*)+)+)*)+)+)*b"],
)
def test_a_pattern_over_which_others_stand_still_is_followed_at_once(pattern: str) -> None:
    found = TopicPattern(pattern)
    began_s = time.process_time()
    found.matches("a" * 249)
    once_s = time.process_time() - began_s
    plain = TopicPattern("[a-z]*b")
    began_s = time.process_time()
    for _ in range(10):
        plain.matches("a" * 249)
    assert once_s < max(100 * (time.process_time() - began_s), 0.5), "in proportion to its states"


@pytest.mark.parametrize(
    "pattern",
    ["", "(", ")", "a)", "(a", "*", "a**", "a*?", "a{", "a{x}", "a{3,1}", "a{1000}", "[", "[a", "[b-a]", "\\", "\\b",
     "\\s", "(?=a)", "(?P<n>a)", "(?i)a", "a^b", "a$b", "x" * 1001, "((((a{9}){9}){9}){9}){9}", "(" * 99 + ")" * 99,
     "]", "}", "{2}"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_and_says_why(pattern: str) -> None:
    with pytest.raises(PatternError, match="no pattern of topics"):
        TopicPattern(pattern)


def test_whole_names_match_and_the_clusters_own_topics_never() -> None:
    pattern = TopicPattern("^orders-(eu|us)-v[0-9]+$")
    names = ["orders-eu-v2", "my-orders-eu-v2", "orders-eu-v2-old", "orders-us-v10", "orders-eu-v"]
    assert pattern.among(names) == {"orders-eu-v2", "orders-us-v10"}
    assert TopicPattern(".*").among(["__consumer_offsets", "t"]) == {"t"}


def test_the_size_of_a_pattern_is_bounded_however_it_repeats() -> None:
    assert len(TopicPattern("(ab){0,9}c*")._states) < STATES_MAX
