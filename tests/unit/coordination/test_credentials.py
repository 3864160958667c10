"""Options of a store's URL for TLS and users."""

from pathlib import Path
from urllib.parse import parse_qs

import pytest
from regnum_coordination.drivers.credentials import Credentials, shown
from regnum_testing.certificates import CA, CLIENT_CERT, CLIENT_KEY, SERVER_KEY


def _read(query: str) -> Credentials:
    return Credentials.from_options(parse_qs(query, keep_blank_values=True))


def test_nothing_is_asked_for_by_default() -> None:
    assert _read("max_txn_ops=200") == Credentials(ca=None, cert=None, key=None, user=None, password_file=None)


def test_all_of_them() -> None:
    assert _read("ca=/c/ca.pem&cert=/c/cert.pem&key=/c/key.pem&user=me&password_file=/c/word") == Credentials(
        ca=Path("/c/ca.pem"),
        cert=Path("/c/cert.pem"),
        key=Path("/c/key.pem"),
        user="me",
        password_file=Path("/c/word"),
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("ca=", "ca is empty"),
        ("ca=a&cert=b", "cert and key go together"),
        ("ca=a&key=b", "cert and key go together"),
        ("cert=a&key=b", "give ca too"),
        ("user=me", "user and password_file go together"),
        ("password_file=a", "user and password_file go together"),
        ("user=&password_file=a", "user is empty"),
    ],
)
def test_halves_are_refused(query: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        _read(query)


def test_a_password_is_the_first_line_and_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "word"
    credentials = Credentials(user="me", password_file=file)
    with pytest.raises(ValueError, match=r"password_file=.*cannot be read"):
        credentials.password()
    file.write_bytes(b"\n")
    with pytest.raises(ValueError, match="is empty"):
        credentials.password()
    file.write_bytes(b"two words \nrest")
    assert credentials.password() == b"two words "
    file.write_bytes(b"new")
    assert credentials.password() == b"new"
    assert "new" not in repr(credentials)


def test_a_password_that_is_no_text_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "word"
    file.write_bytes(b"se\xffcret\n")
    with pytest.raises(ValueError, match="UTF-8") as caught:
        Credentials(user="me", password_file=file).password()
    assert not isinstance(caught.value, UnicodeDecodeError)


def test_files_that_can_be_used() -> None:
    for usable in (Credentials(), Credentials(ca=CA, cert=CLIENT_CERT, key=CLIENT_KEY)):
        assert usable.check_files() is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"ca": "nonsense"}, "holds no certificate"),
        ({"ca": "missing"}, "ca=.*cannot be read"),
        ({"ca": CA, "cert": "nonsense", "key": CLIENT_KEY}, "no certificate and its key"),
        ({"ca": CA, "cert": CLIENT_CERT, "key": SERVER_KEY}, "no certificate and its key"),
        ({"ca": CA, "cert": CLIENT_CERT, "key": "missing"}, "key=.*cannot be read"),
        ({"user": "me", "password_file": "missing"}, "password_file=.*cannot be read"),
    ],
)
def test_files_that_never_can(names: dict[str, str | Path], reason: str, tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("nothing of use\n")
    here = {name: [str(tmp_path / value if name != "user" else value)] for name, value in names.items()}
    with pytest.raises(ValueError, match=reason):
        Credentials.from_options(here).check_files()


def test_what_messages_show_of_a_url() -> None:
    assert shown("etcd://me:word@h:1,g:2/p?password=word#word") == "etcd://h:1,g:2/p"
    assert shown("zookeeper://h/p") == "zookeeper://h/p"
