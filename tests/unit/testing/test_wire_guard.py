"""A change of the wire that an older client or broker would not survive is refused, and an addition is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RELEASED = ROOT / "proto" / "released.binpb"
PRODUCER = Path("proto/regnum/broker/v1/producer.proto")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    shutil.copytree(ROOT / "proto", tmp_path / "proto", ignore=shutil.ignore_patterns("gen"))
    return tmp_path


def breaks(checkout: Path) -> str:
    """What `buf breaking` says; empty when nothing breaks."""
    buf = Path(sys.executable).parent / "buf"
    command = [str(buf), "breaking", "--against", str(RELEASED)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 100), done.stderr
    return done.stdout


def change(checkout: Path, old: str, new: str) -> None:
    file = checkout / PRODUCER
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_the_wire_as_it_is_breaks_nothing_of_the_release(checkout: Path) -> None:
    assert breaks(checkout) == ""


def test_a_new_field_breaks_nothing(checkout: Path) -> None:
    change(checkout, "int32 producer_epoch = 2;", "int32 producer_epoch = 2;\n  // New.\n  int32 other = 99;")
    assert breaks(checkout) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int32 producer_epoch = 2;", "int32 producer_epoch = 7;"),
        ("int32 producer_epoch = 2;", "int64 producer_epoch = 2;"),
        ("int32 producer_epoch = 2;", "int32 epoch = 2;"),
        ("rpc InitProducerId(", "rpc InitProducer("),
        ('go_package = "regnum/', 'go_package = "other/'),
    ],
)
def test_what_an_older_client_would_not_survive_is_refused(checkout: Path, old: str, new: str) -> None:
    change(checkout, old, new)
    assert PRODUCER.name in breaks(checkout)
