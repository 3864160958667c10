"""The largest calls about reassignments hold the controller's loop shortly (safety rule S22)."""

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.reassignment.calls import PAGE_PARTITIONS, PARTITIONS_MAX
from regnum_election.servicers.admin import AdminServicer
from regnum_model.ids import BrokerId
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.reigning import FakeCluster
from regnum_testing.served import served

pytestmark = pytest.mark.alone

NONE = errors_pb2.ERROR_CODE_NONE


@pytest.mark.parametrize(
    ("topics", "each"), [(10, PARTITIONS_MAX // 10), pytest.param(1, 5_000, marks=pytest.mark.full)]
)
def test_many_partitions_are_moved_listed_and_called_back(topics: int, each: int) -> None:
    count = topics * each

    async def whole(held: HeldLoop) -> None:
        cluster = FakeCluster()
        await cluster.begin(1, 2, 3)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        role = OneReign(controller)
        admin = AdminServicer(role)  # type: ignore[arg-type]
        assignment = [admin_pb2.ReplicaAssignment(partition=number, replicas=[1, 2]) for number in range(each)]
        made = admin_pb2.CreateTopicsRequest(
            topics=[admin_pb2.NewTopic(name=f"t{number}", assignment=assignment) for number in range(topics)]
        )
        await served(admin.CreateTopics, admin_pb2.CreateTopicsRequest, made.SerializeToString())

        async def alter(what: str, request: admin_pb2.AlterPartitionReassignmentsRequest) -> None:
            data = request.SerializeToString()
            with held.measuring(what):
                encoded = await served(
                    admin.AlterPartitionReassignments, admin_pb2.AlterPartitionReassignmentsRequest, data
                )
            answer = admin_pb2.AlterPartitionReassignmentsResponse.FromString(encoded)
            assert [result.error_code for result in answer.results] == [NONE] * count

        places = [(f"t{topic}", number) for topic in range(topics) for number in range(each)]
        moving = admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.ReassignablePartition(topic=topic, partition=number, replicas=[2, 3])
                for topic, number in places
            ]
        )
        await alter("AlterPartitionReassignments", moving)
        listing = admin_pb2.ListPartitionReassignmentsRequest().SerializeToString()
        with held.measuring("ListPartitionReassignments"):
            encoded = await served(
                admin.ListPartitionReassignments, admin_pb2.ListPartitionReassignmentsRequest, listing
            )
        page = admin_pb2.ListPartitionReassignmentsResponse.FromString(encoded)
        assert (len(page.reassignments), page.total) == (PAGE_PARTITIONS, count)
        assert page.next_page_token
        back = admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.ReassignablePartition(topic=topic, partition=number, cancel=True) for topic, number in places
            ]
        )
        await alter("AlterPartitionReassignments, called back", back)
        assert BrokerId(3) in controller.picture.brokers
        await cluster.close()

    run_measured(whole).assert_free()


class OneReign:
    """A role with a controller in it."""

    def __init__(self, controller: object) -> None:
        self._controller = controller

    async def controller(self) -> object:
        return self._controller
