"""How kcat, rpk and Kafka's own tools spell things, and what that is here. Pure."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from regnum_client.commands.habits import VALUE, Habit
from regnum_client.commands.invocation import Output


def _is(*becomes: str) -> Habit:
    return Habit(becomes=becomes)


def _told(answer: str) -> Habit:
    return Habit(answer=answer)


_FORMS: Final = frozenset(form.value for form in Output)

_BOOTSTRAP: Final = _is(f"--bootstrap={VALUE}")
_TOPIC: Final = Habit(becomes=(VALUE,), argument="TOPIC")
_GROUP: Final = Habit(becomes=(VALUE,), argument="GROUP")
_TLS: Final = _told(
    "`regnum --tls-ca FILE --tls-certificate FILE --tls-key FILE COMMAND` says how to connect, as REGNUM_TLS_CA, "
    "REGNUM_TLS_CERTIFICATE and REGNUM_TLS_KEY do"
)

EVERYWHERE: Final[Mapping[str, Habit]] = MappingProxyType(
    {
        **dict.fromkeys(("--bootstrap-server", "--bootstrap-servers", "--broker-list", "--brokers", "-b"), _BOOTSTRAP),
        **dict.fromkeys(("--topic", "-t"), _TOPIC),
        **dict.fromkeys(("--group", "-g"), _GROUP),
        "--format": _is(f"--output={VALUE}"),
        "--json": _is("--output=json"),
        "-y": _is("--yes"),
        "--force": _is("--yes"),
        "--zookeeper": _told("commands talk to brokers, --bootstrap HOST:PORT"),
        "--verbose": _told("--debug shows the stack trace of a failure"),
        **dict.fromkeys(("--command-config", "--consumer.config", "--producer.config", "-X"), _TLS),
        **dict.fromkeys(("--tls-ca", "--tls-cert", "--tls-key", "--tls-truststore"), _TLS),
    }
)
"""Spellings that any command understands which has what they become."""

_PROPERTY: Final = _told(
    "-k SEPARATOR prints keys (`regnum consume TOPIC -k :`), and --format chooses the fields, such as '%o %k %v\\n'"
)
_UNDER: Final = {"under-replicated": "--trouble=under-replicated", "under-min-isr": "--trouble=under-min-isr"}
_ENTITY: Final = _told("say whose settings with --topic NAME, --broker ID or --cluster")

OPTIONS: Final[Mapping[str, Mapping[str, Habit]]] = MappingProxyType(
    {
        "consume": {
            "-C": _is(),
            "-q": _is(),
            "-c": _is(f"--max-messages={VALUE}"),
            "--count": _is(f"--max-messages={VALUE}"),
            "--num": _is(f"--max-messages={VALUE}"),
            "-e": _is("--until-end"),
            "-G": _is(f"--group={VALUE}"),
            "-J": _is("--output=jsonl"),
            "-K": _is(f"--key-separator={VALUE}"),
            "-f": Habit(becomes=(f"--format={VALUE}",), only=lambda value: "%" in value),
            "-o": Habit(becomes=(f"--from={VALUE}",), only=lambda value: value not in _FORMS),
            "--offset": _is(f"--from={VALUE}"),
            "--from-beginning": _is("--from=begin"),
            "--partitions": _is(f"--partition={VALUE}"),
            "--include": _is(f"--topics-matching={VALUE}"),
            "--timeout-ms": _told("--timeout SECONDS ends when no record has come for so long"),
            "--property": _PROPERTY,
            "--formatter": _PROPERTY,
            "--consumer-property": _told("options of `regnum consume` are all that there is; see --help"),
            "--isolation-level": _told("there are no transactions, so every committed record is read"),
            "--tail": _told("--from -N begins N records before the end, as --from end does behind it"),
        },
        "produce": {
            "-P": _is(),
            "-q": _is(),
            "-K": _is(f"--key-separator={VALUE}"),
            "-l": _is(f"--file={VALUE}"),
            "-z": _is(f"--compression={VALUE}"),
            "--compression-codec": _is(f"--compression={VALUE}"),
            "--compression-type": _is(f"--compression={VALUE}"),
            "--request-required-acks": _is(f"--acks={VALUE}"),
            "--headers": _is(f"--header={VALUE}"),
            "--key": _told("each line carries its key: `echo key:value | regnum produce TOPIC -k :`"),
            "--property": _told("-k SEPARATOR parts key and value in a line: `regnum produce TOPIC -k :`"),
            "--producer-property": _told("options of `regnum produce` are all that there is; see --help"),
            "-D": _told("records are lines; one that holds line feeds goes by the SDK"),
        },
        "topics create": {
            "-c": _is(f"--config={VALUE}"),
            "--topic-config": _is(f"--config={VALUE}"),
            "--replicas": _is(f"--replication-factor={VALUE}"),
            "--replica-assignment": _told("--assignment '1,2,3;2,3,1' names the brokers of each partition"),
        },
        "topics list": {
            **{f"--{name}-partitions": _is(becomes) for name, becomes in _UNDER.items()},
            "--unavailable-partitions": _is("--trouble=offline"),
            "--exclude-internal": _is("--no-internal"),
            "--topic": _is(f"--match={VALUE}"),
            "--regex": _told("--match takes a pattern with * and ?, --prefix the beginning of a name"),
        },
        "topics describe": {
            **{f"--{name}-partitions": _is(becomes) for name, becomes in _UNDER.items()},
            "--unavailable-partitions": _is("--trouble=offline"),
        },
        "topics add-partitions": {
            "--num": _is(f"--count={VALUE}"),
            "--partitions": _told("--count says how many to add; Kafka's --partitions is how many there are then"),
        },
        "topics delete-records": {"--offset": _is(f"--before-offset={VALUE}")},
        "groups describe": {"--offsets": _is(), "--all-groups": _told("`regnum groups list --lag` shows all")},
        "groups reset-offsets": {
            "--to": _told("give --to-earliest, --to-latest, --to-datetime TIME, --to-offset N or --shift-by N"),
            "--by-duration": _told("--to-datetime -1h goes back by an hour"),
            "--yes": _is("--execute"),
        },
        "groups delete": {"--execute": _is("--yes")},
        "topics delete": {"--execute": _is("--yes")},
        "configs alter": {
            "--add-config": _is(f"--set={VALUE}"),
            "--delete-config": _is(f"--delete={VALUE}"),
            **dict.fromkeys(("--entity-type", "--entity-name", "--entity-default"), _ENTITY),
        },
        "configs describe": dict.fromkeys(("--entity-type", "--entity-name", "--entity-default"), _ENTITY),
        "acls add": {
            "--allow-principal": _is(f"--allow={VALUE}"),
            "--deny-principal": _is(f"--deny={VALUE}"),
        },
        "up": {"-n": _is(f"--brokers={VALUE}"), "--nodes": _is(f"--brokers={VALUE}")},
        "status": {
            "--exit-when-healthy": _told("--wait SECONDS looks again until all is well"),
            "--watch": _told("--wait SECONDS looks again until all is well"),
        },
    }
)
"""Spellings that one command understands, by the words of the command."""

PROGRAMS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "kafka-topics": ("topics",),
        "kafka-console-consumer": ("consume",),
        "kafka-console-producer": ("produce",),
        "kafka-consumer-groups": ("groups",),
        "kafka-configs": ("configs",),
        "kafka-acls": ("acls",),
        "-C": ("consume",),
        "-P": ("produce",),
        "-L": ("cluster", "describe"),
        "version": ("--version",),
        "consumer-groups": ("groups",),
    }
)
"""First words of other tools that are commands here."""

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "container": "`regnum up` starts a cluster on this machine, `regnum down` ends it",
        "redpanda": "`regnum up` starts a cluster on this machine",
        "kafka-server-start": "`regnum up` starts a cluster on this machine",
        "kafka-leader-election": "`regnum partitions elect-leaders` elects leaders",
        "kafka-reassign-partitions": "`regnum partitions reassign` moves replicas, with a plan before",
        "kafka-get-offsets": "`regnum topics describe TOPIC --offsets` shows where logs begin and end",
        "kafka-log-dirs": "`regnum topics describe TOPIC --sizes` shows how large replicas are",
        "kafka-metadata-quorum": "`regnum controller` shows the controller, `regnum status` how all is",
        "security": "`regnum acls` has the rules, `regnum tokens` delegation tokens, `regnum certs` certificates",
        "user": "users are the names in certificates and tokens; `regnum acls` and `regnum tokens` have what they may",
        "health": "`regnum status` says how all is, in its exit status, too",
        "debug": "`regnum doctor` looks at everything, `regnum doctor --bundle FILE` packs what a report needs",
        "registry": "Regnum has no schema registry; values are bytes",
        "transform": "Regnum runs no transforms; a consumer that produces does",
        "connect": "Regnum has no connectors; see the SDK, `regnum produce` and `regnum consume`",
        "txn": "Regnum has no transactions; producers are idempotent",
        "transactions": "Regnum has no transactions; producers are idempotent",
        "login": "certificates say who calls: `regnum --tls-certificate FILE --tls-key FILE COMMAND`",
        "topics consume": "`regnum consume TOPIC` reads records",
        "topics produce": "`regnum produce TOPIC` writes records",
        "topics alter": "`regnum topics config set TOPIC NAME=VALUE` changes settings, `regnum topics add-partitions "
        "TOPIC --count N` adds partitions",
        "topics alter-config": "`regnum topics config set TOPIC NAME=VALUE` changes settings",
        "topics trim-prefix": "`regnum topics delete-records TOPIC --before-offset N` deletes the oldest records",
        "topics describe-storage": "`regnum topics describe TOPIC --sizes` shows how large replicas are",
        "topics ls": "`regnum topics list` lists them",
        "topics rm": "`regnum topics delete TOPIC` deletes one",
        "topics info": "`regnum topics describe TOPIC` shows one",
        "groups seek": "`regnum groups reset-offsets GROUP` has it go on elsewhere",
        "groups ls": "`regnum groups list` lists them",
        "groups lag": "`regnum groups list --lag` shows how far behind groups are",
        "groups alter": "`regnum groups reset-offsets GROUP` has it go on elsewhere",
        "cluster info": "`regnum cluster describe` shows brokers and controller",
        "cluster health": "`regnum status` says how all is, in its exit status, too",
        "configs get": "`regnum configs describe --topic NAME` shows what is in force",
        "configs list": "`regnum configs describe` shows what is in force",
        "brokers decommission": "`regnum brokers drain ID` moves its replicas away",
        "brokers ls": "`regnum brokers list` lists them",
    }
)
"""Commands of other tools that are others here: what to type."""

PLURALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        one.removesuffix("s"): one
        for one in ("topics", "groups", "brokers", "configs", "acls", "partitions", "quotas", "tokens", "logs")
    }
)
"""Singular of a group of commands -> its name."""


def canonical(path: str) -> str:
    """The words of a command as the tables have them, of a path such as ``regnum topic create``."""
    first, _, rest = path.partition(" ")[2].partition(" ")
    return f"{PLURALS.get(first, first)} {rest}".strip()


def first_words(arguments: Sequence[str]) -> list[str]:
    """The arguments of the whole command line with a command of this tool at their beginning, where one is known.

    >>> first_words(["kafka-topics.sh", "--list"])
    ['topics', '--list']
    >>> first_words(["-b", "localhost:9092", "-C", "-t", "orders"])
    ['consume', '-b', 'localhost:9092', '-t', 'orders']
    >>> first_words(["help", "topics"])
    ['topics', '--help']
    """
    if not arguments:
        return []
    if arguments[0] == "help":
        return [*arguments[1:], "--help"]
    # kcat's modes may stand anywhere; its other options begin with one dash, as none of this command line does.
    place = 0
    if arguments[0].startswith("-") and not arguments[0].startswith("--"):
        place = next((at for at, one in enumerate(arguments) if one in {"-C", "-P", "-L"}), 0)
    words = PROGRAMS.get(arguments[place].removesuffix(".sh"))
    if words is None:
        return list(arguments)
    return [*words, *arguments[:place], *arguments[place + 1 :]]


def verb_first(arguments: Sequence[str], commands: Mapping[str, object], options: Collection[str] = ()) -> list[str]:
    """The arguments of a group of commands with ``--list`` as ``list`` at their beginning; not one of its ``options``.

    >>> verb_first(["--bootstrap-server", "h:1", "--create", "--topic", "t"], {"create": None})
    ['create', '--bootstrap-server', 'h:1', '--topic', 't']
    """
    if not arguments or not arguments[0].startswith("-"):
        return list(arguments)
    for at, one in enumerate(arguments):
        if one.startswith("--") and one not in options and (one[2:] in commands or one == "--alter"):
            return [one[2:], *arguments[:at], *arguments[at + 1 :]]
    return list(arguments)
