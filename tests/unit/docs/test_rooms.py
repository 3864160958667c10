"""The rooms of the large packages stay small enough for a head."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES_MAX = 14
CLASS_LINES_MAX = 350
FILE_LINES_MAX = 500
TEST_LINES_MAX = 600
FOLDERS = ("libs", "services", "analysis", "bench", "tests")
PACKAGES = (
    "services/election/regnum_election",
    "services/broker/regnum_broker",
    "libs/client/regnum_client",
)


def classes(file: Path) -> list[tuple[str, int]]:
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)]
    return [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in nodes]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_room_has_more_files_than_a_reader_can_survey(package: str) -> None:
    rooms = {file.parent for file in (ROOT / package).rglob("*.py")}
    crowded = {str(room.relative_to(ROOT)): len(list(room.glob("*.py"))) for room in rooms}
    assert {room: count for room, count in crowded.items() if count > FILES_MAX} == {}
    assert len(rooms) > 4, "the package is where this test looks for it"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_is_longer_than_fits_in_a_head(package: str) -> None:
    long = {
        f"{file.relative_to(ROOT)}: {name}": lines
        for file in (ROOT / package).rglob("*.py")
        for name, lines in classes(file)
        if lines >= CLASS_LINES_MAX
    }
    assert long == {}


def test_no_file_is_longer_than_one_sitting() -> None:
    files = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines())
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if "gen" not in file.parts
    }
    assert len(files) > 900, "the files are where this test looks for them"
    assert {
        file: lines
        for file, lines in files.items()
        if lines > (TEST_LINES_MAX if file.startswith("tests/") else FILE_LINES_MAX)
    } == {}
