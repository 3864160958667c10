"""Reads tables from a folder; asks for pyarrow."""

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from regnum_insight.tables.columns import VERSION


class TablesError(Exception):
    """These are no tables, or none of this version."""


def rows_of_table(
    tables: Path, name: str, columns: Sequence[str], since: date | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of a table with some of its columns, of changes that began on a day or later.

    ``cluster`` and ``date`` are those of its folders. Raises TablesError.
    """
    folder = tables / name
    if not folder.is_dir():
        raise TablesError(f"there are no tables in {tables}: it has no {name}; `python -m regnum_failover` writes them")
    for file in sorted(folder.glob("cluster=*/date=*/*.parquet")):
        day = file.parent.name.partition("=")[2]
        if since is not None and day < since.isoformat():
            continue
        about = {"cluster": unquote(file.parent.parent.name.partition("=")[2]), "date": day}
        parquet = pq.ParquetFile(file)
        version = (parquet.schema_arrow.metadata or {}).get(b"regnum.tables.version", b"?").decode()
        if version != str(VERSION):
            raise TablesError(f"{file} is of version {version} of the tables, and this reads {VERSION}")
        for row in parquet.read(columns=[column for column in columns if column not in about]).to_pylist():
            yield {**row, **{column: of for column, of in about.items() if column in columns}}
