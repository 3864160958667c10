"""What others have written is printed whatever the locale, and stays what it is for programs."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from regnum_client.commands.records.template import Template
from regnum_client.commands.rendering import take_any_text, yaml_of
from regnum_client.records import ConsumedRecord
from regnum_testing.batches import batch_of

TEXT = '\u043a\u043b\u044e\u0447 \u20ac \U0001f600 \udcff"\\'


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_a_stream_takes_any_text_and_json_stays_json(encoding: str) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    take_any_text(stream)
    stream.write(json.dumps({"key": TEXT}, ensure_ascii=False))
    assert json.loads(written.getvalue().decode(encoding)) == {"key": TEXT}


def test_yaml_is_in_ascii_where_that_is_all_there_is() -> None:
    text = TEXT.replace("\udcff", "")
    assert yaml_of({"key": text}, allow_unicode=False).isascii()
    assert yaml.safe_load(yaml_of({"key": text}, allow_unicode=False)) == {"key": text}


def test_bytes_of_an_argument_that_are_no_text_come_back() -> None:
    record = ConsumedRecord("orders", 0, 1, 0, None, b"v", (("h", b"1"),))
    assert Template(f"{os.fsdecode(bytes([0xFF]))}%v %h").render(record) == b"\xffv h=1"


@pytest.mark.parametrize("output", ["json", "yaml", "table"])
def test_the_command_prints_what_others_wrote_in_an_ascii_locale(output: str, tmp_path: Path) -> None:
    text = TEXT.replace("\udcff", "")
    (tmp_path / f"{0:020d}.log").write_bytes(batch_of(text.encode()))
    program = "import sys; from regnum_client.command import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "logs", "inspect", "--records", str(tmp_path), "-o", output],
        env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr[:200] if output != "table" else b"") == (0, b"")
    printed = ran.stdout.decode("ascii")
    if output == "table":
        assert "\\u043a\\u043b" in printed
    else:
        rows = json.loads(printed) if output == "json" else yaml.safe_load(printed)
        assert text in [row.get("value") for row in rows]
