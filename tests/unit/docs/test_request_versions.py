"""The table of request versions in docs/api.md is what the controller goes by."""

import re
from pathlib import Path

from regnum.types.v1.types_pb2 import RequestHeader
from regnum_election.servicers import admin
from regnum_election.servicers.callers import account_of

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
ROW = re.compile(r"^\| (\w+) \| [^|]+ \| (\d+) \|$", re.MULTILINE)


def test_every_version_that_means_something_is_in_the_table() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Versions of requests\n")[1].split("\n## ")[0]
    assert {name: int(version) for name, version in ROW.findall(section)} == {
        "CreateTopics": admin.CREATE_STRICT_SINCE,
        "CreatePartitions": admin.CREATE_PARTITIONS_STRICT_SINCE,
        "DeleteTopics": admin.DELETE_STRICT_SINCE,
    }


def test_a_request_without_a_version_is_of_the_newest() -> None:
    strict = {
        version: account_of(RequestHeader(api_version=version), strict_since=6).strict for version in (0, 5, 6, 99)
    }
    assert strict == {0: True, 5: False, 6: True, 99: True}
