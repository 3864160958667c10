"""What others have written is printed whatever the locale, and stays what it is for programs."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from regnum_client.commands.invocation import Failure, Output, note, visible
from regnum_client.commands.looking.row_stream import RowStream
from regnum_client.commands.records.template import Template
from regnum_client.commands.rendering import emit_failure, emit_one, emit_rows, take_any_text, yaml_of
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


HOSTILE = "a\x1b[31mb\x07c\x9b2Jd\u202ee\x7f"
"""Colours, a bell, an empty screen by one character, text turned around."""
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
"""What a terminal obeys, but for line feeds."""


@pytest.mark.parametrize("output", list(Output))
def test_no_name_says_anything_to_a_terminal_behind_a_pipe(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": HOSTILE, "note": "two\nlines"}
    emit_rows([row], output, columns=("name", "note"))
    emit_one(row, output)
    stream = RowStream(output, columns=("name", "note"))
    stream.add([row])
    stream.close()
    emit_failure(Failure(code="X", message=HOSTILE, exit_status=1, metadata={"name": HOSTILE}), output)
    note(HOSTILE)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert OBEYED.search(text) is None
        assert "a\\u001b[31mb" in text or "a\\e[31mb" in text or "a\\x1b[31mb" in text
    if output is Output.TABLE:
        assert "two\\nlines" in told.out, "a row stays a line"
    if output is Output.JSONL:
        assert [json.loads(line) for line in told.out.splitlines()] == [row] * 3


def test_names_that_a_terminal_would_obey_are_the_same_for_programs() -> None:
    assert json.loads(visible(json.dumps({"name": HOSTILE}, ensure_ascii=False))) == {"name": HOSTILE}
    assert yaml.safe_load(yaml_of({"name": HOSTILE})) == {"name": HOSTILE}
    assert (
        visible("\u043a\u043b\u044e\u0447 \u20ac \U0001f600\tx\n") == "\u043a\u043b\u044e\u0447 \u20ac \U0001f600\tx\n"
    )


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
