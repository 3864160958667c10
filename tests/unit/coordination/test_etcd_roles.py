"""Which etcd keeps users to their roles, as the published advisories have it."""

import pytest
from regnum_coordination.drivers.etcd.roles import UNTOLD, keeps_roles, roles_weakness


@pytest.mark.parametrize(
    ("version", "keeps"),
    [
        ("3.4.44", False),
        ("3.5.1", False),
        ("3.5.28", False),
        ("3.5.33", True),
        ("3.6.5", False),
        ("3.6.13", False),
        ("3.6.14", True),
        ("3.6.16", True),
        ("3.7.0", False),
        ("3.7.0-rc.1", False),
        ("3.7.1", True),
        ("3.8.0", True),
        ("4.0.0", True),
        ("unknown", True),
        (UNTOLD, False),
    ],
)
def test_releases(version: str, *, keeps: bool) -> None:
    assert keeps_roles(version) is keeps


def test_the_oldest_member_counts_and_what_to_run_is_said() -> None:
    assert roles_weakness([]) == roles_weakness(["3.6.16", "3.5.35"]) == ()
    (said,) = roles_weakness(["3.6.16", "3.6.5", "3.6.5"])
    assert said.startswith("is etcd 3.6.5, in which")
    assert "3.5.33, 3.6.14, 3.7.1" in said
