"""Which versions a broker passes on, and which the controller alone answers."""

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import types_pb2
from regnum_model.api_versions import (
    ADMIN_SERVICE,
    FORWARDED,
    NEWEST,
    OF_THE_GATE,
    forwarding_of,
    is_forwarded,
    version_of,
)

SEED_004 = {
    "AlterConfigs": 2,
    "IncrementalAlterConfigs": 2,
    "CreateAcls": 3,
    "DeleteAcls": 3,
    "AlterClientQuotas": 1,
    "CreateDelegationToken": 3,
    "RenewDelegationToken": 3,
    "ExpireDelegationToken": 3,
}
SEED_000 = {"CreateTopics": 6, "CreatePartitions": 3, "DeleteTopics": 5}


def test_every_mutation_of_the_seeds_goes_to_the_controller_from_the_version_that_they_raise_it_to() -> None:
    changing = {name: found.direct_since for name, found in FORWARDED.items() if found.changes}
    assert changing == SEED_000 | SEED_004
    for name, since in changing.items():
        assert is_forwarded(f"{ADMIN_SERVICE}{name}", since - 1)
        assert not is_forwarded(f"{ADMIN_SERVICE}{name}", since)
        assert not is_forwarded(f"{ADMIN_SERVICE}{name}", NEWEST)


def test_what_only_shows_something_is_named_so_and_nothing_else() -> None:
    assert {name for name, found in FORWARDED.items() if not found.changes} == {
        name for name in FORWARDED if name.startswith("Describe")
    }


@pytest.mark.parametrize(
    "path",
    [
        "CreateTopics",
        "/regnum.election.v1.ControllerService/Envelope",
        "/regnum.election.v1.ControllerService/CreateTopics",
        f"{ADMIN_SERVICE}Envelope",
        f"{ADMIN_SERVICE}ResignController",
        f"{ADMIN_SERVICE}{ADMIN_SERVICE}CreateTopics",
        f" {ADMIN_SERVICE}CreateTopics",
        "",
    ],
)
def test_nothing_else_is_passed_on_at_any_version(path: str) -> None:
    assert forwarding_of(path) is None
    assert not is_forwarded(path, 0)


def test_what_clients_of_kafka_send_to_the_controllers_gate_travels_and_has_no_version_that_brokers_take() -> None:
    assert OF_THE_GATE.keys().isdisjoint(FORWARDED)
    for name in OF_THE_GATE:
        assert forwarding_of(f"{ADMIN_SERVICE}{name}") is OF_THE_GATE[name]
        assert not is_forwarded(f"{ADMIN_SERVICE}{name}", 0)
        assert OF_THE_GATE[name].changes is not name.startswith("List")


def test_a_header_that_names_no_version_means_the_newest_and_zero_is_said_apart() -> None:
    assert version_of(0, version_zero=False) == NEWEST
    assert version_of(0, version_zero=True) == 0
    assert version_of(7, version_zero=False) == 7
    for api_version, version_zero in ((-1, False), (-(2**31), False), (-1, True), (1, True)):
        with pytest.raises(ValueError, match="version"):
            version_of(api_version, version_zero=version_zero)


def test_every_request_of_administration_begins_with_its_header() -> None:
    """Brokers read nothing else of what they pass on."""
    header = types_pb2.RequestBeginning.DESCRIPTOR.fields_by_name["header"]
    for method in admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods:
        first = method.input_type.fields_by_number[header.number]
        assert (first.name, first.message_type) == ("header", header.message_type), method.name
