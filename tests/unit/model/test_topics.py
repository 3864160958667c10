import pytest
from regnum_model.topics import InvalidTopicNameError, check_topic_name


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "-0", "a-0-1", "__consumer_offsets", "x" * 249, "...", "a.b"])
def test_legal_names_pass(name: str) -> None:
    assert check_topic_name(name) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        (".", "named"),
        ("..", "named"),
        ("x" * 250, "249"),
        ("../x", "characters"),
        ("a/b", "characters"),
        ("a\0b", "characters"),
        ("a\r\nb", "characters"),
        ("a\n", "characters"),
        ("é", "characters"),
        ("ＡＢＣ", "characters"),  # noqa: RUF001 - full-width letters are the point
        ("a b", "characters"),
    ],
)
def test_illegal_names_are_refused_with_the_reason(name: str, says: str) -> None:
    with pytest.raises(InvalidTopicNameError, match=says):
        check_topic_name(name)
