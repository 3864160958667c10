"""The controller is killed at the write of a setting or a quota: the SDK's repeat finds it done, or does it, once."""

from pathlib import Path

import pytest
from regnum_client import Admin, ConfigAlteration, ConfigResource, QuotaAlteration, QuotaEntity
from regnum_model.broker_configs import GROUP_MAX_SIZE
from regnum_model.configs import RETENTION_MS, decode_config, topic_config
from regnum_model.mutations import log_of
from regnum_model.quotas import RATE_KEY, QuotaNode
from regnum_testing.topic_client import hands_on
from regnum_testing.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(240)]

ANN = QuotaEntity(user="ann")


async def test_a_change_whose_controller_is_killed_before_or_after_its_write_is_made_once(tmp_path: Path) -> None:
    async with hands_on(tmp_path) as hands:
        failpoints, admin = hands.failpoints, hands.admin
        await admin.create_topic("kept", partitions=1)
        resource, path = ConfigResource(topic="kept"), topic_config("kept")
        for number, moment in enumerate(("before", "after")):
            controller = await failpoints.controller()
            failpoints.arm(controller, f"action=kill when={moment} step=write path={path}")
            await admin.alter_config(ConfigAlteration(resource=resource, set={RETENTION_MS: str(60_000 + number)}))
            assert await failpoints.fired(controller), moment
            await failpoints.revive(controller)
            node = await failpoints.store.get(path, current=True)
            assert decode_config(node.data, example="") == {RETENTION_MS: str(60_000 + number)}
            assert (node.stat.version, len(log_of(node.data).records)) == (number, number + 1)
            in_force = {one.name: one.value for one in await admin.describe_config(resource)}
            assert in_force[RETENTION_MS] == str(60_000 + number)
        for number, moment in enumerate(("before", "after")):
            controller = await failpoints.controller()
            failpoints.arm(controller, f"action=kill when={moment} step=write path={ANN.path}")
            done = await admin.alter_client_quotas([QuotaAlteration(entity=ANN, set={RATE_KEY: 5.0 + number})])
            assert done == {ANN: None}
            assert await failpoints.fired(controller), moment
            await failpoints.revive(controller)
            node = await failpoints.store.get(ANN.path, current=True)
            assert QuotaNode.decode(node.data).config == {RATE_KEY: str(5 + number)}
            assert (node.stat.version, len(log_of(node.data).records)) == (number, number + 1)


async def test_a_setting_of_a_broker_is_in_force_there_without_a_restart_and_shown_as_the_broker_runs(
    tmp_path: Path,
) -> None:
    async with hands_on(tmp_path) as hands:
        one, other = ConfigResource(broker=1), ConfigResource(broker=2)
        (own,) = (await hands.admin.alter_configs([ConfigAlteration(resource=one, set={GROUP_MAX_SIZE: "7"})])).values()
        assert own is None

        async def says(resource: ConfigResource, value: str, source: str) -> bool:
            shown = {entry.name: entry for entry in await hands.admin.describe_config(resource)}
            return (shown[GROUP_MAX_SIZE].value, shown[GROUP_MAX_SIZE].source.value) == (value, source)

        async def in_force() -> bool:
            return await says(one, "7", "broker")

        await eventually(in_force, what="the broker has taken it up")
        assert not await says(other, "7", "broker")
        shown = {entry.name: entry for entry in await hands.admin.describe_config(one)}
        assert shown["broker.id"].value == "1"
        assert shown["broker.id"].read_only
        assert shown["data.dir"].read_only
        await _cluster_wide(hands.admin, other)


async def _cluster_wide(admin: Admin, other: ConfigResource) -> None:
    await admin.alter_config(ConfigAlteration(resource=ConfigResource(), set={GROUP_MAX_SIZE: "9"}))

    async def heard() -> bool:
        return {entry.name: entry.value for entry in await admin.describe_config(other)}[GROUP_MAX_SIZE] == "9"

    await eventually(heard, what="the other broker has the cluster's")
