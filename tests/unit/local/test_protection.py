"""What a start in a folder gives: never less than the cluster in it had."""

import pytest
from regnum_local.protection import Protection, check_bind, keep, protected_as_before, protection_path
from regnum_service.errors import ExitStatus, StartRefusedError

NONE, TLS, ACL = Protection(), Protection(tls=True), Protection(tls=True, acl=True)


@pytest.mark.parametrize(
    ("had", "asked", "given"),
    [
        (NONE, NONE, NONE),
        (NONE, TLS, TLS),
        (NONE, ACL, ACL),
        (TLS, NONE, TLS),
        (ACL, NONE, ACL),
        (ACL, TLS, ACL),
        (TLS, ACL, ACL),
    ],
)
def test_a_cluster_comes_back_as_it_was_or_better(tmp_path, had, asked, given):
    keep(had, tmp_path)
    (tmp_path / "certs").mkdir()
    assert protected_as_before(asked, tmp_path) == given


def test_a_folder_that_does_not_say_is_taken_as_asked_for_and_never_as_unprotected(tmp_path):
    assert protected_as_before(NONE, tmp_path / "new") == NONE
    (tmp_path / "certs").mkdir()
    with pytest.raises(StartRefusedError, match="give --acl if they were, and --tls if not") as caught:
        protected_as_before(NONE, tmp_path)
    assert caught.value.exit_status is ExitStatus.CONFLICT
    assert protected_as_before(ACL, tmp_path) == ACL


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"version": 1}', '{"version": 1, "tls": "no", "acl": 0}'])
def test_what_cannot_be_read_is_refused(tmp_path, text):
    protection_path(tmp_path).write_text(text)
    with pytest.raises(StartRefusedError, match=r"protection\.json.*repair it"):
        protected_as_before(TLS, tmp_path)


@pytest.mark.parametrize(
    ("host", "addresses", "here", "protection", "reason"),
    [
        ("10.0.0.5", ["10.0.0.5"], True, NONE, "give --acl"),
        ("box", ["127.0.1.1", "10.0.0.5"], True, NONE, "give --acl"),
        ("0.0.0.0", ["0.0.0.0"], True, ACL, "is no place"),  # noqa: S104 - it is refused
        ("::", ["::"], True, ACL, "is no place"),
        ("10.0.0.6", ["10.0.0.6"], False, ACL, r"no interface of this machine has 10\.0\.0\.6"),
    ],
)
def test_clients_come_to_an_address_of_this_machine_and_beyond_loopback_with_tls(
    host, addresses, here, protection, reason
):
    with pytest.raises(StartRefusedError, match=reason) as caught:
        check_bind(host, protection, addresses_of=lambda _host: addresses, is_here=lambda _address: here)
    assert caught.value.exit_status is ExitStatus.WRONG_USE


def test_a_name_that_is_not_known_is_refused():
    def unknown(_host: str) -> list[str]:
        raise OSError("Name or service not known")

    with pytest.raises(StartRefusedError, match="nothing is known by the name boxx: Name or service not known"):
        check_bind("boxx", ACL, addresses_of=unknown)


@pytest.mark.parametrize(
    ("addresses", "protection"), [(["127.0.0.1"], NONE), (["::1"], NONE), (["fe80::1%eth0"], TLS), (["10.0.0.5"], ACL)]
)
def test_other_hosts_are_taken(addresses, protection):
    asked = []
    check_bind("box", protection, addresses_of=lambda _host: addresses, is_here=lambda one: not asked.append(one))
    assert asked == addresses
