"""Nodes as 0.1.0 wrote them are read; nodes of a later version are refused with words; what a later one adds stays."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from regnum_coordination.port import Node, Stat
from regnum_coordination.recipes.config_mutations import config_mutation, quota_mutation
from regnum_coordination.recipes.mutating import Change
from regnum_model.acls.nodes import decode_rules, encode_rules, pattern_at
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.configs import decode_config
from regnum_model.delegation_tokens import DelegationToken
from regnum_model.features import Features
from regnum_model.nodes import (
    AddressNode,
    BrokerNode,
    ControllerNode,
    DeletedTopicNode,
    DeletionNode,
    ElectionNode,
    LeaderAndIsr,
    MalformedNodeError,
    MetadataNode,
    PartitionDeletionNode,
    ProducerIdBlockNode,
    TopicIdNode,
    TopicNode,
    decode_controller_epoch,
)
from regnum_model.nodes.lives import LifeNode
from regnum_model.protocols import UNSAID
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quota_terms import QuotaTermsNode
from regnum_model.quotas import PRODUCER_BYTE_RATE, QuotaEntity, QuotaNode, QuotaProcessNode

NODES: Final[dict[str, str]] = json.loads((Path(__file__).parent / "v0.1.0" / "nodes.json").read_text(encoding="utf-8"))
"""Every node of a cluster of 0.1.0, and those that are there only meanwhile."""

READERS: Final[dict[str, Callable[[str, bytes], Any]]] = {
    r"/acl/[a-z]+/[a-z_]+/.+": lambda path, data: decode_rules(pattern_at(path), data),
    r"/admin/delete_topics/.+": lambda _, data: DeletionNode.decode(data),
    r"/admin/delete_partitions/.+/\d+": lambda _, data: PartitionDeletionNode.decode(data),
    r"/brokers/ids/\d+": lambda _, data: BrokerNode.decode(data),
    r"/brokers/topic_ids/.+": lambda _, data: TopicIdNode.decode(data),
    r"/brokers/topics/[^/]+": lambda _, data: TopicNode.decode(data),
    r"/brokers/topics/[^/]+/\d+/leaderAndISR": lambda _, data: LeaderAndIsr.decode(data),
    r"/config/(cluster|brokers/.+|topics/.+)": lambda _, data: decode_config(data, example=""),
    r"/config/(clients|users)/.+": lambda _, data: QuotaNode.decode(data),
    r"/delegation_tokens/.+": lambda path, data: DelegationToken.decode(path.rpartition("/")[2], data),
    r"/election/ids/\d+": lambda _, data: ElectionNode.decode(data),
    r"/feature": lambda _, data: Features.decode(data),
    r"/latest_producer_id_block": lambda _, data: ProducerIdBlockNode.decode(data),
    r"/metadata/ids/\d+": lambda _, data: MetadataNode.decode(data),
    r"/quota/(active|ids/\d+)": lambda _, data: QuotaProcessNode.decode(data),
    r"/quota/terms": lambda _, data: QuotaTermsNode.decode(data),
    r"/controller": lambda _, data: ControllerNode.decode(data),
    r"/controller_epoch": lambda _, data: decode_controller_epoch(data),
}
"""Who reads a node, by its path."""

LATER_READERS: Final[dict[str, Callable[[str, bytes], Any]]] = {
    r"/admin/deleted_topics/.+": lambda _, data: DeletedTopicNode.decode(data),
    r"/brokers/lives/\d+": lambda _, data: LifeNode.decode(data),
    r"/(brokers|election|metadata|quota)/addresses/.+": lambda _, data: AddressNode.decode(data),
}
"""Of nodes that 0.1.0 did not have."""

WITHOUT_CONTENT: Final = (r"/cluster/id", r"/admin/draining/\d+", r"/config/changes/.+", r"/brokers/epochs/\d+")
"""Nodes of which only the name, the version or the text as it is means something."""

VERSIONED: Final = sorted(path for path, text in NODES.items() if '"version":' in text)


def reader(path: str) -> Callable[[str, bytes], Any] | None:
    return next((read for pattern, read in READERS.items() if re.fullmatch(pattern, path)), None)


def test_every_node_of_the_first_release_is_read() -> None:
    unread = [
        path
        for path, text in NODES.items()
        if text and reader(path) is None and not any(re.fullmatch(pattern, path) for pattern in WITHOUT_CONTENT)
    ]
    assert not unread
    used = {pattern for pattern in READERS for path, text in NODES.items() if text and re.fullmatch(pattern, path)}
    assert used == READERS.keys(), "each reader has something to read"
    for path, text in NODES.items():
        if text and (read := reader(path)) is not None:
            assert read(path, text.encode()) is not None


@pytest.mark.parametrize("kept", sorted(Path(__file__).parent.glob("v*/nodes.json")), ids=lambda path: path.parent.name)
def test_every_node_of_each_release_is_read(kept: Path) -> None:
    read = 0
    for path, text in json.loads(kept.read_text(encoding="utf-8")).items():
        if text and not any(re.fullmatch(pattern, path) for pattern in WITHOUT_CONTENT):
            readers = {**READERS, **LATER_READERS}
            (found,) = [readers[pattern] for pattern in readers if re.fullmatch(pattern, path)]
            assert found(path, text.encode()) is not None
            read += 1
            if '"version":1' in text and path != "/controller":
                with pytest.raises(MalformedNodeError, match="a later release wrote it"):
                    found(path, json.dumps({**json.loads(text), "version": 2}).encode())
    assert read > 15


def test_a_release_has_left_its_formats() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if ".dev" not in project["version"]:
        assert (Path(__file__).parent / f"v{project['version']}" / "nodes.json").exists(), "docs/releasing.md, step 2"


def test_what_the_nodes_say_is_what_was_written() -> None:
    topic = TopicNode.decode(NODES["/brokers/topics/moving"].encode())
    assert topic.encode().decode() == NODES["/brokers/topics/moving"]
    assert (topic.left, topic.creating, topic.mutation) == ({1: (4,)}, {1}, "m1")
    for path in ("/brokers/topics/moving/0/leaderAndISR", "/brokers/topics/moving/3/leaderAndISR"):
        assert LeaderAndIsr.decode(NODES[path].encode()).encode().decode() == NODES[path]
    broker = BrokerNode.decode(NODES["/brokers/ids/1"].encode())
    assert broker.build == UNSAID
    assert broker.encode().decode() == NODES["/brokers/ids/1"]
    assert Features.decode(NODES["/feature"].encode()).inter_broker_protocol == 2
    assert decode_config(NODES["/config/cluster"].encode(), example="")["max.message.bytes"] == "2000000"
    assert QuotaNode.decode(NODES["/config/users/alice"].encode()).config["controller_mutation_rate"] == "5"
    assert QuotaTermsNode.decode(b"") == QuotaTermsNode(), "so they were where nobody is exempt"
    path = "/acl/literal/topic/orders"
    rules = decode_rules(pattern_at(path), NODES[path].encode())
    assert encode_rules(rules).decode().removesuffix("}") in NODES[path]


@pytest.mark.parametrize("path", [path for path in VERSIONED if reader(path) is not None])
def test_a_node_of_a_later_version_is_refused_with_both_versions_and_what_to_do(path: str) -> None:
    read = reader(path)
    assert read is not None
    later = json.dumps({**json.loads(NODES[path]), "version": 2}).encode()
    if path == "/controller":
        assert read(path, later).election_id == 1, "who cannot read it would depose its owner"
        return
    with pytest.raises(MalformedNodeError, match="has version 2 and this release reads 1: a later release wrote it"):
        read(path, later)


@pytest.mark.parametrize("path", [path for path in VERSIONED if reader(path) is not None])
@pytest.mark.parametrize("version", [None, "1", 0])
def test_what_a_hand_wrote_in_place_of_the_version_is_read_as_0_1_0_read_it(path: str, version: object) -> None:
    read = reader(path)
    assert read is not None
    data = json.dumps({**json.loads(NODES[path]), "version": version}).encode()
    if path.startswith(("/acl/", "/delegation_tokens/")):
        with pytest.raises(MalformedNodeError, match="version"):
            read(path, data)
        return
    assert read(path, data) == read(path, NODES[path].encode())


@pytest.mark.parametrize("path", [path for path in VERSIONED if reader(path) is not None])
def test_what_a_later_release_adds_to_a_node_is_no_reason_not_to_read_it(path: str) -> None:
    read = reader(path)
    assert read is not None
    more = json.dumps({**json.loads(NODES[path]), "added": {"later": [1]}}).encode()
    before, after = read(path, NODES[path].encode()), read(path, more)
    if isinstance(after, TopicNode):
        assert after.further == {"added": {"later": [1]}}
    else:
        assert after == before


def test_a_topic_node_that_is_written_again_keeps_what_it_does_not_know() -> None:
    more = {**json.loads(NODES["/brokers/topics/moving"]), "added": {"later": [1]}}
    again = json.loads(TopicNode.decode(json.dumps(more).encode()).encode())
    assert again == more


def test_what_is_final_stays_final_when_another_feature_was_finalized_later() -> None:
    data = b'{"version":1,"features":{"inter.broker.protocol.version":2,"later.feature":7}}'
    assert json.loads(Features.decode(data).encode()) == json.loads(data)


def node(data: bytes) -> Node:
    stat = Stat(creation_id=1, modification_id=1, version=0, children_id=1, ephemeral_owner=None)
    return Node(data=data, stat=stat)


@pytest.mark.parametrize(("value", "config"), [("5", {"retention.ms": "5"}), (None, {})])
def test_settings_that_are_changed_keep_what_the_node_says_besides(value: str | None, config: dict[str, str]) -> None:
    resource = Resource(type=ResourceType.TOPIC, name="orders")
    alteration = Alteration(resource=resource, operations=(Operation(key="retention.ms", value=value),))
    known = node(b'{"version":1,"config":{"retention.ms":"1"},"added":[2]}')
    change = config_mutation(alteration, id=None).decide({resource.path: known})
    assert isinstance(change, Change)
    assert json.loads(change.data) == {"version": 1, "config": config, "added": [2]}
    assert not change.empty, "a node that says something else does not go"


def test_quotas_that_are_changed_keep_what_the_node_says_besides() -> None:
    entity = QuotaEntity(client_id="importer")
    limit = LimitChange(key=PRODUCER_BYTE_RATE, value=None)
    change = quota_mutation(EntityChange(entity=entity, limits=(limit,)), id=None).decide(
        {entity.path: node(b'{"version":1,"config":{"producer_byte_rate":"1"},"added":[2]}')}
    )
    assert isinstance(change, Change)
    assert json.loads(change.data) == {"version": 1, "config": {}, "added": [2]}
    assert not change.empty
