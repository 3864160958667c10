"""The page of settings says what the definitions say."""

from regnum_broker.configs.flags import DYNAMIC, READ_ONLY
from regnum_broker.settings import BrokerSettings
from regnum_model.configs import DEFINITIONS
from regnum_testing.configs_page import PAGE, main, page


def test_the_page_is_what_the_definitions_make_of_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make proto`"
    assert main(["--other"]) == 2


def test_every_setting_and_every_flag_is_on_the_page() -> None:
    text = page()
    for one in DEFINITIONS.values():
        assert f"| `{one.name}` | {one.type.value} |" in text
        assert one.doc in text
    assert BrokerSettings.model_fields.keys() - {*READ_ONLY, *DYNAMIC} == {"failpoint_file"}, "for tests only"
    for field in (*READ_ONLY, *DYNAMIC):
        assert f"`--{field.replace('_', '-')}`" in text


def test_every_row_has_as_many_cells_as_its_head() -> None:
    widths = {line.count("|") - line.count("\\|") for line in page().splitlines() if line.startswith("|")}
    assert widths == {5, 7}
