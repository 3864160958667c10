"""The report's page in a real browser, where there is one."""

import pytest
from regnum_testing.pictures.__main__ import judge
from regnum_testing.pictures.browser import MISSING, Browser, find_browser


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_page_asks_for_nothing_complains_of_nothing_and_says_what_the_json_says(tmp_path):
    program = find_browser()
    if program is None:
        pytest.skip(MISSING)
    assert judge(Browser(program), tmp_path, pictures=False) == []
