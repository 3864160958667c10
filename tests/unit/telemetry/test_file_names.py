"""Client ids as names of files."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_telemetry.file_names import LENGTH_MAX, file_name


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("regnum-broker", "regnum-broker"),
        ("team/billing", "team~2Fbilling"),
        ("worker:1", "worker~3A1"),
        ("_billing", "~5Fbilling"),
        (".hidden", "~2Ehidden"),
        ("../outside", "~2E.~2Foutside"),
        ("-rf", "~2Drf"),
        ("a\nb\0", "a~0Ab~00"),
        ("", "~"),
        ("~", "~7E"),
        ("\udcff", "~ED~B3~BF"),
    ],
)
def test_spellings(name: str, file: str) -> None:
    assert file_name(name) == file


@given(st.text())
def test_every_name_is_a_plain_one(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9~][A-Za-z0-9~._-]*", file_name(name))
    assert len(file_name(name)) <= LENGTH_MAX


@given(st.text(max_size=60))
def test_a_short_name_can_be_read_back(name: str) -> None:
    encoded = file_name(name)
    if "~~" not in encoded:
        plain = re.sub(rb"~([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), encoded.encode())
        assert plain.decode("utf-8", "surrogatepass") == name or (encoded, name) == ("~", "")


def test_long_names_stay_apart() -> None:
    names = ["x" * 300, "x" * 301, "x" * 200 + "y" * 100, "\u00e4" * 200, "\u00e4" * 201]
    assert len({file_name(name) for name in names}) == len(names)
