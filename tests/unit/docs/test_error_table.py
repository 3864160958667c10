"""The table of error codes in docs/api.md is the table that the code goes by."""

from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_service.error_advice import advice_of
from regnum_service.errors import ERRORS, reason_of
from regnum_testing.error_table import PAGE, meanings, table, with_table


def test_the_page_is_in_step_with_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run `make proto` (python -m regnum_testing.error_table --write)"


def test_every_code_of_the_wire_is_in_it_once() -> None:
    rows = [line.split(" | ") for line in table()[2:]]
    assert all(len(row) == 7 for row in rows), "a meaning has a bar in it, which is one of the table"
    named = {row[0].removeprefix("| "): int(row[1]) for row in rows}
    assert len(named) == len(rows)
    assert named == {name.removeprefix("ERROR_CODE_"): number for name, number in ErrorCode.items()}


def test_every_code_has_a_meaning_and_something_to_do() -> None:
    means = meanings()
    for code in ERRORS:
        assert means[reason_of(code)]
        assert advice_of(code)


def test_an_old_table_is_replaced_and_nothing_else() -> None:
    page = "\n".join(["before", "", *table()[:5], "", "after", ""])
    assert with_table(page) == "\n".join(["before", "", *table(), "", "after", ""])
