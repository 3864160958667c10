"""What settings nodes mean, and what changes make of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_election.decisions.configs import Settings, read_cluster, read_topic
from regnum_model.config_changes import (
    Alteration,
    ListChange,
    Operation,
    Resource,
    ResourceType,
    altered,
    changed_config,
    check_alteration,
    own_settings,
    repeated_resources,
)
from regnum_model.configs import (
    CLEANUP_POLICY,
    DEFAULT_REPLICATION_FACTOR,
    DEFAULTS,
    DEFINITIONS,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MIN_COMPACTION_LAG_MS,
    MIN_INSYNC_REPLICAS,
    NO_SETTINGS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    ReplicaSettings,
    encode_config,
    parse_value,
)
from regnum_model.configs import UNCLEAN_LEADER_ELECTION_ENABLE as UNCLEAN
from regnum_model.nodes import MalformedNodeError
from regnum_model.rejection import Rejection

CLUSTER = Resource(type=ResourceType.CLUSTER)
TOPIC = Resource(type=ResourceType.TOPIC, name="t")
KNOWN = {MIN_INSYNC_REPLICAS: 3, DEFAULT_REPLICATION_FACTOR: 2}


def alteration(resource: Resource, **values: str | None) -> Alteration:
    keys = {"min": MIN_INSYNC_REPLICAS, "factor": DEFAULT_REPLICATION_FACTOR}
    operations = tuple(Operation(key=keys.get(name, name), value=value) for name, value in values.items())
    return Alteration(resource=resource, operations=operations)


def test_what_a_node_does_not_say_is_what_it_was_and_has_to_be_written() -> None:
    for data in (None, b"", encode_config({"controller_mutation_rate": "5"})):
        reading = read_cluster(data, KNOWN)
        assert (reading.values, reading.missing, reading.problem) == (KNOWN, tuple(DEFAULTS), "")
    reading = read_cluster(encode_config({MIN_INSYNC_REPLICAS: "1"}), KNOWN)
    assert reading.values == {**KNOWN, MIN_INSYNC_REPLICAS: 1}
    assert reading.missing == (DEFAULT_REPLICATION_FACTOR,)


@pytest.mark.parametrize("text", ["0", "-1", "2.0", " 2", "", "two", "32768", "9" * 5_000, "٢"])
def test_a_value_that_is_no_number_of_replicas_leaves_the_one_before(text: str) -> None:
    with pytest.raises(MalformedNodeError):
        parse_value(MIN_INSYNC_REPLICAS, text)
    reading = read_cluster(encode_config({MIN_INSYNC_REPLICAS: text, DEFAULT_REPLICATION_FACTOR: "5"}), KNOWN)
    assert reading.values == {MIN_INSYNC_REPLICAS: 3, DEFAULT_REPLICATION_FACTOR: 5}
    assert MIN_INSYNC_REPLICAS in reading.problem


@given(st.binary(max_size=60))
def test_no_bytes_are_too_strange_to_be_read(data: bytes) -> None:
    assert read_cluster(data, KNOWN).values.keys() == KNOWN.keys()
    assert read_topic(data, {MIN_INSYNC_REPLICAS: 2}).values.keys() <= {MIN_INSYNC_REPLICAS}


def test_a_topics_own_value_goes_before_the_clusters() -> None:
    settings = Settings(cluster=KNOWN).with_topics({"own": {MIN_INSYNC_REPLICAS: 1}})
    assert (settings.min_insync("own"), settings.min_insync("other")) == (1, 3)
    assert settings.with_topics({"own": None}).min_insync("own") == 3


def test_the_cluster_goes_before_the_default_and_what_nobody_set_is_told_to_nobody() -> None:
    settings = Settings(cluster={**KNOWN, SEGMENT_BYTES: 1 << 20, UNCLEAN: 1}).with_topics(
        {"own": {MAX_MESSAGE_BYTES: 5_000, UNCLEAN: 0}}
    )
    assert settings.of_replicas("own") == ReplicaSettings(segment_bytes=1 << 20, max_message_bytes=5_000)
    assert settings.of_replicas("other") == ReplicaSettings(segment_bytes=1 << 20)
    assert (settings.unclean_allowed("own"), settings.unclean_allowed("other")) == (False, True)
    assert settings.of_topic("other", MAX_MESSAGE_BYTES) == DEFINITIONS[MAX_MESSAGE_BYTES].default
    assert Settings().of_replicas("other") == NO_SETTINGS
    assert not Settings().unclean_anywhere
    unclean = Settings().with_topics({"own": {UNCLEAN: 1}, "other": {SEGMENT_MS: 5_000}})
    assert unclean.unclean_anywhere
    assert not unclean.with_topics({"own": {UNCLEAN: 0}}).unclean_anywhere
    assert not unclean.with_topics({"own": None}).unclean_anywhere


def test_only_topics_with_settings_of_their_own_are_looked_at_while_the_clusters_stay() -> None:
    before = Settings(cluster=KNOWN).with_topics({"a": {MIN_INSYNC_REPLICAS: 1}, "b": {MIN_INSYNC_REPLICAS: 1}})
    names = [f"t{number}" for number in range(1_000)]
    assert list(before.may_differ(before.with_topics({"b": None, "c": {SEGMENT_MS: 5_000}}), names)) == ["b", "c"]
    assert list(before.may_differ(Settings(cluster={**KNOWN, SEGMENT_MS: 5_000}), names)) == names


def test_one_bad_key_of_a_topic_leaves_what_it_was_and_the_others_are_taken() -> None:
    config = {MIN_INSYNC_REPLICAS: "2", SEGMENT_BYTES: "tiny", MAX_MESSAGE_BYTES: "1", "later.setting": "x"}
    data = encode_config(config)
    reading = read_topic(data, {SEGMENT_BYTES: 1 << 21})
    assert reading.values == {MIN_INSYNC_REPLICAS: 2, SEGMENT_BYTES: 1 << 21}
    assert SEGMENT_BYTES in reading.problem
    assert MAX_MESSAGE_BYTES in reading.problem
    assert read_topic(data).values == {MIN_INSYNC_REPLICAS: 2}, "without an earlier value it is the cluster's"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (alteration(CLUSTER, other="1"), errors_pb2.ERROR_CODE_INVALID_CONFIG),
        (alteration(TOPIC, factor="1"), errors_pb2.ERROR_CODE_INVALID_CONFIG),
        (alteration(CLUSTER, min="0"), errors_pb2.ERROR_CODE_INVALID_CONFIG),
        (alteration(TOPIC, min="many"), errors_pb2.ERROR_CODE_INVALID_CONFIG),
        (alteration(TOPIC), errors_pb2.ERROR_CODE_INVALID_REQUEST),
    ],
)
def test_what_can_never_be_is_refused_before_anything_is_written(wanted: Alteration, code: int) -> None:
    refused = check_alteration(wanted, repeated=frozenset())
    assert refused is not None
    assert refused.code == code


def test_a_resource_or_a_setting_that_stands_twice_is_refused() -> None:
    one = alteration(TOPIC, min="1")
    refused = check_alteration(one, repeated=repeated_resources([one, alteration(TOPIC, min=None)]))
    assert refused is not None
    twice = Alteration(resource=CLUSTER, operations=one.operations * 2)
    assert check_alteration(twice, repeated=frozenset()) is not None
    assert check_alteration(one, repeated=repeated_resources([one])) is None


MIN_LAG, MAX_LAG = MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS


def listed(key: str, change: ListChange, value: str) -> Alteration:
    return Alteration(resource=TOPIC, operations=(Operation(key=key, value=value, change=change),))


@pytest.mark.parametrize(
    ("before", "in_force", "change", "value", "after"),
    [
        ({}, {}, ListChange.APPEND, "compact", "compact,delete"),
        ({}, {CLEANUP_POLICY: 2}, ListChange.APPEND, "compact", "compact"),
        ({CLEANUP_POLICY: "compact"}, {}, ListChange.APPEND, "delete", "compact,delete"),
        ({CLEANUP_POLICY: "compact,delete"}, {}, ListChange.APPEND, "delete", "compact,delete"),
        ({CLEANUP_POLICY: "compact,delete"}, {}, ListChange.SUBTRACT, "delete", "compact"),
        ({CLEANUP_POLICY: "compact"}, {}, ListChange.SUBTRACT, "delete", "compact"),
        ({CLEANUP_POLICY: "compact"}, {}, ListChange.SUBTRACT, "compact", None),
        ({CLEANUP_POLICY: "nonsense"}, {}, ListChange.SUBTRACT, "compact", None),
    ],
)
def test_elements_are_added_to_a_list_that_is_in_force_and_taken_out_of_it(
    before: dict[str, str], in_force: dict[str, int], change: ListChange, value: str, after: str | None
) -> None:
    wanted = listed(CLEANUP_POLICY, change, value)
    assert check_alteration(wanted, repeated=frozenset()) is None
    changed = changed_config(before, wanted, in_force=in_force)
    if after is None:
        assert isinstance(changed, Rejection)
        assert changed.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    else:
        assert changed == {CLEANUP_POLICY: after}


def test_what_is_no_list_has_no_elements_and_each_kind_of_change_is_another_mutation() -> None:
    refused = check_alteration(listed(MIN_INSYNC_REPLICAS, ListChange.APPEND, "1"), repeated=frozenset())
    assert refused is not None
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    set_to = alteration(TOPIC, **{CLEANUP_POLICY: "compact"})
    assert len({set_to.digest, *(listed(CLEANUP_POLICY, one, "compact").digest for one in ListChange)}) == 3


@pytest.mark.parametrize("resource", [TOPIC, CLUSTER, Resource(type=ResourceType.BROKER, name="1")])
def test_what_is_taken_back_if_it_is_known_need_not_be(resource: Resource) -> None:
    taken_back = Operation(key="replica.alter.log.dirs.io.max.bytes.per.second", value=None, if_known=True)
    wanted = Alteration(resource=resource, operations=(taken_back,))
    assert check_alteration(wanted, repeated=frozenset()) is None
    before = {"controller_mutation_rate": "5"}
    assert changed_config(before, wanted) == before
    for refused in (replace(taken_back, if_known=False), replace(taken_back, value="1")):
        assert check_alteration(replace(wanted, operations=(refused,)), repeated=frozenset()) is not None


def lags(resource: Resource, *, replace: bool = False, **values: str | None) -> Alteration:
    keys = {"least": MIN_LAG, "most": MAX_LAG}
    operations = tuple(Operation(key=keys.get(name, name), value=value) for name, value in values.items())
    return Alteration(resource=resource, operations=operations, replace=replace)


@pytest.mark.parametrize(
    ("before", "in_force", "wanted"),
    [
        ({}, {}, lags(TOPIC, least="2000", most="1000")),
        ({MAX_LAG: "1000"}, {}, lags(TOPIC, least="2000")),
        ({MIN_LAG: "2000"}, {}, lags(TOPIC, most="1000")),
        ({}, {MAX_LAG: 1_000}, lags(TOPIC, least="2000")),
        ({MIN_LAG: "2000", MAX_LAG: "3000"}, {MAX_LAG: 1_000}, lags(TOPIC, most=None)),
        ({MIN_LAG: "2000", MAX_LAG: "3000"}, {MAX_LAG: 1_000}, lags(TOPIC, replace=True, least="2000")),
        ({MAX_LAG: "1000"}, {}, lags(CLUSTER, least="2000")),
    ],
)
def test_a_lag_before_compaction_above_the_one_after_which_it_must_come_is_refused(
    before: dict[str, str], in_force: dict[str, int], wanted: Alteration
) -> None:
    refused = changed_config(before, wanted, in_force=in_force)
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    assert f"{MIN_LAG} would be 2000 and {MAX_LAG} 1000" in refused.message
    assert "both in one call" in refused.message


def test_lags_that_fit_are_set_together_and_what_did_not_fit_before_stops_no_other_change() -> None:
    raised = changed_config({MIN_LAG: "1", MAX_LAG: "2"}, lags(TOPIC, least="5", most="5"))
    assert raised == {MIN_LAG: "5", MAX_LAG: "5"}
    assert changed_config({MIN_LAG: "2000"}, lags(TOPIC, least=None), in_force={MAX_LAG: 1_000}) == {}
    wrong = {MIN_LAG: "2000", MAX_LAG: "1000"}
    assert changed_config(wrong, alteration(TOPIC, min="1")) == {**wrong, MIN_INSYNC_REPLICAS: "1"}


def test_a_topic_is_not_created_with_lags_that_do_not_fit() -> None:
    for configs in ([(MIN_LAG, "2000"), (MAX_LAG, "1000")], [(MIN_LAG, "2000")]):
        refused = own_settings(configs, in_force={MAX_LAG: 1_000})
        assert isinstance(refused, Rejection)
        assert refused.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    assert own_settings([(MIN_LAG, "2000"), (MAX_LAG, "2000")], in_force={MAX_LAG: 1_000}) == {
        MIN_LAG: 2_000,
        MAX_LAG: 2_000,
    }


def test_what_is_taken_back_is_the_default_and_other_keys_stay() -> None:
    before = {MIN_INSYNC_REPLICAS: "5", "controller_mutation_rate": "7", "later.setting": "x"}
    assert altered(before, alteration(CLUSTER, min=None)) == {**before, MIN_INSYNC_REPLICAS: "2"}
    assert altered(before, alteration(TOPIC, min=None)) == {
        "controller_mutation_rate": "7",
        "later.setting": "x",
    }
    assert altered({}, alteration(TOPIC, min="007")) == {MIN_INSYNC_REPLICAS: "7"}
