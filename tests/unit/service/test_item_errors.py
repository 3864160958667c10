"""What an item of a request failed with, for clients that know google.rpc and none of our codes."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import google.rpc
import pytest
import regnum
from google.protobuf.descriptor import Descriptor
from google.rpc import error_details_pb2, status_pb2
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import ERRORS, Code, reason_of
from regnum_service.item_errors import item_status

ROOT = Path(__file__).parents[3]
PUBLIC = ("admin", "broker", "metadata")
NO_ITEMS = {"regnum.admin.v1.RecoverableReplica"}
"""Says why nothing is known of a replica, inside of an item."""


def details(status: status_pb2.Status | None) -> tuple[error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo | None]:
    assert status is not None
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    if len(status.details) == 1:
        return info, None
    assert status.details[1].Unpack(retry)
    return info, retry


def messages() -> Iterator[Descriptor]:
    """Of what clients call."""
    for folder in map(Path, regnum.__path__):
        for path in folder.rglob("*_pb2.py"):
            if path.parts[-3] in PUBLIC:
                parts = ("regnum", *path.relative_to(folder).with_suffix("").parts)
                yield from importlib.import_module(".".join(parts)).DESCRIPTOR.message_types_by_name.values()


def test_a_success_has_no_status_and_costs_no_byte() -> None:
    assert item_status(errors_pb2.ERROR_CODE_NONE, "") is None
    result = log_pb2.ProduceResult(topic="t", status=item_status(errors_pb2.ERROR_CODE_NONE, ""))
    assert result.SerializeToString() == log_pb2.ProduceResult(topic="t").SerializeToString()


@pytest.mark.parametrize("code", sorted(set(ERRORS) - {errors_pb2.ERROR_CODE_NONE}))
def test_every_code_has_the_status_of_the_table(code: Code) -> None:
    for _ in range(2):
        status = item_status(code, "what to do")
        assert status is not None
        assert (status.code, status.message) == (ERRORS[code].status.value[0], "what to do")
        info, retry = details(status)
        assert (info.domain, info.reason, dict(info.metadata)) == ("regnum", reason_of(code), {})
        assert (retry is not None) == ERRORS[code].retriable


def test_what_one_status_says_is_not_in_the_next() -> None:
    code = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    first = item_status(code, "first", retry_after_ms=700)
    assert first is not None
    first.details[0].type_url = "changed by somebody"
    second = item_status(code, "second", retry_after_ms=700)
    assert second is not None
    assert second.message == "second"
    assert details(second)[1] == error_details_pb2.RetryInfo(retry_delay={"nanos": 700_000_000})
    other = details(item_status(code, "third", facts={"leader_id": "2"}, retry_after_ms=1_000))
    assert dict(other[0].metadata) == {"leader_id": "2"}
    assert other[1] == error_details_pb2.RetryInfo(retry_delay={"seconds": 1})


def test_every_item_that_may_fail_has_room_for_it() -> None:
    failing = {one.full_name: one for one in messages() if "error_message" in one.fields_by_name}
    assert len(failing) > 10
    for name, one in failing.items():
        if name not in NO_ITEMS:
            assert one.fields_by_name["status"].message_type.full_name == "google.rpc.Status", name


@pytest.mark.parametrize("name", ["status.proto", "error_details.proto"])
def test_the_copies_of_googles_files_are_those_of_the_library(name: str) -> None:
    (theirs,) = {Path(folder) / name for folder in google.rpc.__path__ if (Path(folder) / name).exists()}
    assert (ROOT / "proto/google/rpc" / name).read_bytes() == theirs.read_bytes()
