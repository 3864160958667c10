"""docs/configs.md, made from the definitions of settings and from the flags of the broker.

python -m regnum_testing.configs_page            exit 1 when the page says something else
python -m regnum_testing.configs_page --write    write it; ``make proto``
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_core import PydanticUndefined
from regnum_broker.configs.flags import READ_ONLY, is_sensitive
from regnum_broker.settings import BrokerSettings
from regnum_model.config_definition import ConfigDefinition
from regnum_model.configs import DEFAULTS, DEFINITIONS

from regnum_testing.made_file import ROOT, look_or_write

PAGE: Final = ROOT / "docs" / "configs.md"

INTRODUCTION: Final = """\
# Settings

Made from the definitions in `libs/model/regnum_model/configs.py` and `broker_configs.py`, and from the flags of the
broker, by `make proto`: change them there.

All settings of the first three tables are changed while everything runs, and are in force at once on every broker:

```
regnum configs set --topic orders retention.ms=60000
regnum configs set --broker 3 log.cleaner.processor.percentage=10
regnum configs set --cluster min.insync.replicas=1
```

`unset` resets them, `describe` shows what is in force and where it comes from, `--dry-run` only checks.
A topic's or a broker's own value goes before the cluster's, the cluster's before the flag of the process, that before
the default.
They stand in the store below `/config`, where a person may edit them
([operations](operations/settings.md#settings-of-the-cluster-and-of-topics)).
"""


def page() -> str:
    """All of it."""
    topics = [one for one in DEFINITIONS.values() if one.topic]
    brokers = [one for one in DEFINITIONS.values() if one.broker]
    cluster = [one for one in DEFINITIONS.values() if not one.topic and not one.broker]
    return "\n".join(
        [
            INTRODUCTION,
            "## Of topics",
            "",
            "A topic may have its own (`--topic`); the cluster's (`--cluster`) is for all that have none.",
            "",
            *_table(topics),
            "",
            "## Of brokers",
            "",
            "A broker may have its own (`--broker`); the cluster's is for all that have none.",
            "",
            *_table(brokers),
            "",
            "## Of the cluster",
            "",
            *_table(cluster),
            "",
            "## What a broker is started with",
            "",
            "Flags, `REGNUM_*` variables, or defaults. `regnum configs describe --broker ID` shows them as the broker",
            "runs them,",
            "read-only; a secret, and a URL with a password in it, is left out.",
            "",
            "| name | flag | default | meaning |",
            "|---|---|---|---|",
            *map(_flag_row, READ_ONLY),
            "",
        ]
    )


def _table(definitions: Iterable[ConfigDefinition]) -> list[str]:
    rows = ("| name | type | values | default | flag | meaning |", "|---" * 6 + "|")
    return [*rows, *(_row(one) for one in sorted(definitions, key=lambda one: one.name))]


def _row(one: ConfigDefinition) -> str:
    default = one.format(one.default) + (" (always named)" if one.name in DEFAULTS else "")
    flag = f"`--{one.flag}`" if one.flag else "-"
    return f"| `{one.name}` | {one.type.value} | {one.valid_values} | {default} | {flag} | {one.doc} |"


def _flag_row(field: str) -> str:
    info = BrokerSettings.model_fields[field]
    default = "has to be given" if info.default is PydanticUndefined else "-" if info.default is None else info.default
    secret = " Never shown." if is_sensitive(field, None) else ""
    meaning = (info.description or "").replace("|", "\\|")
    return f"| `{field.replace('_', '.')}` | `--{field.replace('_', '-')}` | {default} | {meaning}{secret} |"


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    return look_or_write(PAGE, page, arguments, tool="configs_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
