"""Metadata processes of a local cluster."""

from pathlib import Path

from regnum_local.plan import EMPTY, Launch, Plan, Role, command, grow


def grown(plan: Plan, metadata: int) -> Plan:
    return grow(
        plan,
        brokers=1,
        elections=1,
        metadata=metadata,
        store=Role.ETCD,
        is_free=lambda _port: True,
        choose=lambda taken: max(taken, default=15_000) + 1,
    )


def test_a_cluster_from_before_there_was_a_metadata_service_gets_its_processes() -> None:
    old = grown(EMPTY, 0)
    plan = grown(Plan.from_json(old.to_json()), 2)
    assert [member.name for member in plan.of(Role.METADATA)] == ["metadata-1", "metadata-2"]
    assert all(member in plan.members for member in old.members)
    assert grown(plan, 1) == plan


def test_a_metadata_process_is_told_its_id_and_listeners() -> None:
    plan = grown(EMPTY, 1)
    member = plan.get("metadata-1")
    assert member is not None
    launch = Launch(python="/py", store=(), data_dir=Path("/d"), coordination="etcd://h:1", extra={})
    line = command(member, launch)
    assert line[:4] == ["/py", "-P", "-m", "regnum_metadata"]
    assert line[line.index("--metadata-id") + 1] == "1"
    assert line[line.index("--client-listen") + 1] == str(member.address("client"))
    assert line[line.index("--internal-listen") + 1] == str(member.address("internal"))
