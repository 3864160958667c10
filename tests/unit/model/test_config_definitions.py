"""Every setting is defined in one place, and means what its text says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE, THROTTLE_RATE_MIN
from regnum_model.config_definition import CLEANUP_POLICIES, NO_LIMIT, TIMESTAMP_TYPES, ConfigDefinition, ConfigType
from regnum_model.configs import (
    CLEANUP_POLICY,
    DEFINITIONS,
    MAX_MESSAGE_BYTES,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_INSYNC_REPLICAS,
    RETENTION_BYTES,
    RETENTION_MS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    format_value,
    parse_value,
)
from regnum_model.nodes import MalformedNodeError

definitions = st.sampled_from(list(DEFINITIONS.values()))


@given(definitions, st.data())
def test_every_value_of_the_range_is_written_and_read_back(one: ConfigDefinition, data: st.DataObject) -> None:
    numbers = st.integers(max(one.low, one.least), one.high)
    value = data.draw(st.one_of(st.just(0), numbers) if one.least else numbers)
    assert parse_value(one.name, format_value(one.name, value)) == value


@given(definitions, st.one_of(st.text(max_size=30), st.integers().map(str), st.just("9" * 5_000)))
def test_any_other_text_is_refused_with_the_range(one: ConfigDefinition, text: str) -> None:
    known = {"true": 1, "false": 0} if one.type is ConfigType.BOOLEAN else {}
    if one.type is ConfigType.LIST:
        known = dict(CLEANUP_POLICIES)
    if one.type is ConfigType.TIMESTAMPS:
        known = {words.lower(): held for words, held in TIMESTAMP_TYPES.items()}
    if one.type is ConfigType.RATIO and re.fullmatch(r"0(\.[0-9]{1,3})?|1(\.0{1,3})?", text, re.ASCII):
        known[text] = round(float(text) * 1000)
    if one.unlimited:
        known["-1"] = NO_LIMIT
    is_number = one.type is ConfigType.INT and text.isascii() and text.isdigit() and len(text) <= 16
    if text.lower() in known or (is_number and one.low <= int(text) <= one.high and not 0 < int(text) < one.least):
        low = NO_LIMIT if one.unlimited else one.low
        assert parse_value(one.name, text) in range(low, one.high + 1)
        return
    with pytest.raises(MalformedNodeError, match=re.escape(one.valid_values)):
        parse_value(one.name, text)


@given(definitions)
def test_the_default_is_within_the_range_and_everything_is_explained(one: ConfigDefinition) -> None:
    assert one.low <= one.default <= one.high or (one.unlimited and one.default == NO_LIMIT)
    assert one.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        (UNCLEAN_LEADER_ELECTION_ENABLE, "true", 1),
        (UNCLEAN_LEADER_ELECTION_ENABLE, "FALSE", 0),
        (MIN_INSYNC_REPLICAS, "007", 7),
        (MAX_MESSAGE_BYTES, "33554432", 33_554_432),
        (RETENTION_MS, "-1", NO_LIMIT),
        (RETENTION_BYTES, "0", 0),
        (CLEANUP_POLICY, "delete", 1),
        (CLEANUP_POLICY, "Compact", 2),
        (CLEANUP_POLICY, "delete, compact", 3),
        (MIN_CLEANABLE_DIRTY_RATIO, "0.5", 500),
        (MIN_CLEANABLE_DIRTY_RATIO, "0.125", 125),
        (MIN_CLEANABLE_DIRTY_RATIO, "1", 1000),
    ],
)
def test_texts_and_their_values(name: str, text: str, value: int) -> None:
    assert parse_value(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (UNCLEAN_LEADER_ELECTION_ENABLE, "1"),
        (UNCLEAN_LEADER_ELECTION_ENABLE, "yes"),
        (MAX_MESSAGE_BYTES, "1023"),
        (MAX_MESSAGE_BYTES, "33554433"),
        (MIN_INSYNC_REPLICAS, "true"),
        (RETENTION_MS, "-2"),
        (RETENTION_BYTES, "-01"),
        (MAX_MESSAGE_BYTES, "-1"),
        (CLEANUP_POLICY, "2"),
        (CLEANUP_POLICY, ""),
        (CLEANUP_POLICY, "compact,compact"),
        (MIN_CLEANABLE_DIRTY_RATIO, "1.001"),
        (MIN_CLEANABLE_DIRTY_RATIO, "500"),
        (MIN_CLEANABLE_DIRTY_RATIO, "0.0001"),
        (MIN_CLEANABLE_DIRTY_RATIO, "-0.5"),
    ],
)
def test_what_is_out_of_range_or_of_another_type_is_refused(name: str, text: str) -> None:
    with pytest.raises(MalformedNodeError):
        parse_value(name, text)


@pytest.mark.parametrize("name", [LEADER_THROTTLE_RATE, FOLLOWER_THROTTLE_RATE])
def test_a_throttle_that_would_stop_a_move_for_hours_is_refused(name: str) -> None:
    assert parse_value(name, "0") == 0
    assert parse_value(name, str(THROTTLE_RATE_MIN)) == THROTTLE_RATE_MIN
    with pytest.raises(MalformedNodeError, match=f"is 0, or a whole number from {THROTTLE_RATE_MIN} to"):
        parse_value(name, str(THROTTLE_RATE_MIN - 1))
