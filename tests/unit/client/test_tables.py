"""Tables on a terminal: whatever its width, nothing that a cell says is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_client.commands.tables import BOLD, PLAIN, table_lines

BROKERS = (
    "ID",
    "LIVE",
    "LEADERS",
    "PREFERRED",
    "IN SYNC",
    "REPLICAS",
    "OFFLINE REPLICAS",
    "DRAINING",
    "RACK",
    "CLIENT",
)
ROWS = [[str(id), "yes", "12", "12", "30", "30", "0", "no", "-", f"127.0.0.1:2620{id}"] for id in (1, 2, 3)]


def lines(rows: list[list[str]], titles: tuple[str, ...], width: int) -> list[str]:
    return table_lines(rows, titles, width=width, bold=False)


def test_a_table_that_fits_has_a_line_for_each_row() -> None:
    shown = lines(ROWS, BROKERS, 120)
    assert len(shown) == 4
    assert shown[0].split() == " ".join(BROKERS).split()
    assert shown[3].split() == ROWS[2]


def test_a_table_that_does_not_fit_is_broken_between_words() -> None:
    reason = "it has 2 replicas, 1 of which it leads: `regnum brokers drain 5` moves them away"
    shown = lines([["5", "no", reason]], ("BROKER", "SAFE", "REASON"), 60)
    assert shown[0].split() == ["BROKER", "SAFE", "REASON"]
    assert shown[1].startswith("5       no    it has 2 replicas")
    assert all(line.startswith(" " * 14) for line in shown[2:])
    assert " ".join(" ".join(shown[1:]).split()) == f"5 no {reason}"
    assert max(map(len, shown)) <= 60


@pytest.mark.parametrize("width", [80, 40, 1])
def test_brokers_are_shown_whole_on_a_narrow_terminal(width: int) -> None:
    shown = "\n".join(lines(ROWS, BROKERS, width))
    for id in (1, 2, 3):
        assert f"127.0.0.1:2620{id}" in shown
    assert "PREFERRED" in shown
    assert "\u2026" not in shown


def test_where_even_the_words_do_not_fit_each_row_is_a_block() -> None:
    assert lines([["a", "127.0.0.1:26201"], ["b", ""]], ("NAME", "ADDRESS"), 10) == [
        *("NAME     a", "ADDRESS  127.0.0.1:26201", ""),
        *("NAME     b", "ADDRESS"),
    ]


def test_only_titles_are_bold_and_names_cannot_colour_the_terminal() -> None:
    head, row = table_lines([["\x1b[31mred\x07"]], ("NAME",), width=80, bold=True)
    assert head == f"{BOLD}NAME{PLAIN}"
    assert row == "?[31mred?"


def test_letters_that_take_two_columns_keep_the_columns_straight() -> None:
    _, first, second = lines([["\u6ce8\u6587", "1"], ["ab", "2"]], ("NAME", "N"), 80)
    assert first == "\u6ce8\u6587  1"
    assert second == "ab    2"


@given(
    st.lists(st.lists(st.text("ab c,:", max_size=30), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(min_value=1, max_value=60),
)
def test_every_word_of_every_cell_is_there_whatever_the_width(rows: list[list[str]], width: int) -> None:
    words = [word for row in rows for cell in row for word in cell.split()]
    shown = " ".join(lines(rows, ("A", "B", "C"), width)).split()
    for word in set(words):
        assert shown.count(word) >= words.count(word)
