"""docs/request_bounds.md is the table of bounds, as it is made of the protocol."""

from regnum_testing.bounds_page import PAGE, main, page


def test_the_page_is_what_the_bounds_make_of_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make proto` (python -m regnum_testing.bounds_page --write)"
    assert main([]) == 0
    assert main(["--what"]) == 2
