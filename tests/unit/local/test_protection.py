"""What a start in a folder gives: never less than the cluster in it had."""

import pytest
from regnum_local.protection import Protection, keep, protected_as_before, protection_path
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
