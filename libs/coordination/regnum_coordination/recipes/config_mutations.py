"""Changes of settings and of quotas as mutations of their nodes: the same wherever they are carried out (rule S19)."""

from collections.abc import Callable, Mapping
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model import paths
from regnum_model.config_changes import Alteration, ResourceType, changed_config, unreadable
from regnum_model.configs import DEFAULTS, decode_config, encode_config, says_more
from regnum_model.ids import BrokerId
from regnum_model.nodes import MalformedNodeError, TopicNode
from regnum_model.quota_changes import EntityChange, changed_node
from regnum_model.quotas import QuotaNode
from regnum_model.rejection import Rejection

from regnum_coordination.port import Check, Create, Node, Operation
from regnum_coordination.recipes.mutating import Change, Mutation

EXAMPLE: Final = '{"version":1,"config":{"min.insync.replicas":"2"}}'
"""What a node of settings looks like."""

Configs = Mapping[str, str]


def config_mutation(
    alteration: Alteration,
    *,
    id: str | None,
    guards: tuple[Operation, ...] = (),
    quiet: Callable[[Configs, Configs], bool] = lambda _before, _after: False,
    in_force: Mapping[str, int] = DEFAULTS,
    stored_topic: bool = False,
) -> Mutation:
    """A change of one resource's settings that ``check_alteration`` let pass.

    Args:
        alteration: the change.
        id: mutation id.
        guards: checks that have to hold when it is written: that the topic is still the same.
        stored_topic: whether the topic is to be found in the store: whoever is not the controller has no other way to
            know that it is the same one. One that nobody has accepted yet is none.
        in_force: what the cluster's settings are, for a topic that does not name them itself.
        quiet: whether nobody has to be told of what differs, by the settings before and after.
    """
    resource = alteration.resource
    path = resource.path
    # A broker that was never there is a slip of the pen; one that is away may be told.
    known = (paths.broker_epoch(BrokerId(int(resource.name))),) if resource.type is ResourceType.BROKER else ()
    topic = paths.topic(resource.name) if stored_topic and resource.type is ResourceType.TOPIC else None

    def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
        if any(one not in nodes for one in known):
            return Rejection(
                code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
                message=f"there has never been a {resource}; list the brokers to see their ids",
            )
        guard = _guard_of(nodes.get(topic), resource.name) if topic is not None else ()
        if isinstance(guard, Rejection):
            return guard
        node = nodes.get(path)
        try:
            before = _config_of(node)
        except MalformedNodeError as error:
            return unreadable(path, error)
        after = changed_config(before, alteration, in_force=in_force)
        if isinstance(after, Rejection):
            return after
        # As it is, however somebody wrote it, where nothing differs.
        old = None if node is None else node.data
        data = old if old is not None and before == after else encode_config(after, over=old)
        empty = not after and not says_more(old)
        return Change(data=data, empty=empty, also=(*guards, *guard), quiet=quiet(before, after))

    return Mutation(
        path=path, id=id, digest=alteration.digest, decide=decide, reads=(*known, *(() if topic is None else (topic,)))
    )


def quota_mutation(change: EntityChange, *, id: str | None) -> Mutation:
    """A change of one entity's quotas that ``check_change`` let pass.

    The node of a user above client ids with quotas of their own stays as a folder.
    """
    entity = change.entity

    def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
        node = nodes.get(entity.path)
        before = QuotaNode() if node is None else QuotaNode.decode(node.data)
        after = changed_node(before, change.limits)
        if any(limit.value is not None for limit in change.limits):
            # Beside a limit that nobody can read, the one that is set would not be in force.
            _ = after.values
        old = None if node is None else node.data
        data = old if old is not None and before == after else after.encode(over=old)
        empty = not after.config and not says_more(old)
        missing = tuple(Create(folder, b"") for folder in entity.folders if folder not in nodes)
        return Change(data=data, empty=empty, also=missing if node is None else ())

    return Mutation(path=entity.path, id=id, digest=change.digest, decide=decide, reads=entity.folders)


def _guard_of(node: Node | None, name: str) -> tuple[Check, ...] | Rejection:
    """What holds as long as a topic is the same one."""
    id = None if node is None else TopicNode.decode(node.data).topic_id
    if id is None:
        return Rejection(
            code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
            message=f"there is no topic {name[:249]}; list the topics to see the names",
        )
    return (Check(paths.topic_id(id)),)


def _config_of(node: Node | None) -> Configs:
    return {} if node is None else decode_config(node.data, example=EXAMPLE)
