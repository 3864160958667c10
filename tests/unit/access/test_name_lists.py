"""Lists of names: every principal can be written, and plain lists mean what they meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_service.access.name_lists import NameListError, parse_names
from regnum_service.settings import ServiceSettings, load

ADMIN = "CN=admin,OU=Ops,O=Example"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        (" ; ", ()),
        (" root, ann,", ("root", "ann")),
        (ADMIN, (ADMIN,)),
        ("CN=admin, OU=Ops, O=Example", (ADMIN,)),
        (f"{ADMIN};User:x", (ADMIN, "User:x")),
        (f"{ADMIN};", (ADMIN,)),
        ("CN=ann,CN=bob", ("CN=ann", "CN=bob")),
        ("team=a,team=b", ("team=a", "team=b")),
        ("CN=a,CN=Users,DC=example,DC=com;", ("CN=a,CN=Users,DC=example,DC=com",)),
        ("CN=Doe\\, Ann,OU=Ops", ("CN=Doe\\, Ann,OU=Ops",)),
        ("CN=a\\;b,O=x;root", ("CN=a\\;b,O=x", "root")),
        ("CN=a\\\\;root", ("CN=a\\\\", "root")),
        (f'"{ADMIN}",root', (ADMIN, "root")),
        ('" a;b ""c"" \\" ; x', (' a;b "c" \\', "x")),
        ('a"b,c', ('a"b', "c")),
    ],
)
def test_spellings(text: str, names: tuple[str, ...]) -> None:
    assert parse_names(text, commas=True) == names


@pytest.mark.parametrize(
    "text", ["root,CN=a,OU=b", "CN=a,OU=b,CN=c,OU=b", "CN=a,CN=Users,DC=example", f'"x",{ADMIN}', '"open', '"a"b']
)
def test_what_is_in_doubt_is_refused_and_says_how_to_write_it(text: str) -> None:
    with pytest.raises(NameListError, match=r"semicolons|twice"):
        parse_names(text, commas=True)


def test_where_commas_do_not_separate_they_belong_to_the_name() -> None:
    assert parse_names("User:CN=a,CN=b;User:c") == ("User:CN=a,CN=b", "User:c")


@given(st.lists(st.text(min_size=1), min_size=2))
def test_every_name_can_be_written(names: list[str]) -> None:
    text = ";".join('"' + name.replace('"', '""') + '"' for name in names)
    assert parse_names(text) == parse_names(text, commas=True) == tuple(names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"User:{ADMIN};User:b", {f"User:{ADMIN}", "User:b"}),
        ("User:CN=a\\;b;User:c", {"User:CN=a\\;b", "User:c"}),
        ('"User:a;b,User:c";User:d', {"User:a;b,User:c", "User:d"}),
    ],
)
def test_super_users(text: str, names: set[str]) -> None:
    assert ServiceSettings.model_construct(coordination="x", super_users=text).super_user_names == names


def test_super_users_separated_by_commas_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(ServiceSettings, ["--coordination", "etcd://h:1", "--super-users", "User:a,User:b"])
    assert "semicolons do" in capsys.readouterr().err
