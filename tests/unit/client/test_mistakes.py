"""Sixty plausible mistakes: what is wrong, what is valid, what to try; soon, and with the right exit status."""

import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import pytest
from regnum_client.cluster.reach.missing import LOOKING_S
from regnum_client.commands.records.command import TOPIC_WAIT_S
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

WRONG_USE, NOT_FOUND, UNAVAILABLE = 2, 3, 5
ANSWERED_S: Final = 2.0
"""Processor time that an answer may take; what else runs on the machine is not the command's."""


class Mistake(NamedTuple):
    """A command line that cannot be meant so."""

    line: str
    """As it is typed, behind ``regnum``."""
    wrong: str
    """What the answer says is wrong."""
    valid: str
    """What is valid."""
    hint: str
    """What to try."""
    status: int = WRONG_USE
    """How the command ends."""


ALONE: Final = (
    # commands
    Mistake("topcis list", "`regnum topcis`", "topics", "did you mean `regnum topics`?"),
    Mistake("topics lst", "`regnum topics lst`", "create", "did you mean `regnum topics list`?"),
    Mistake("topic lists", "`regnum topic lists`", "describe", "did you mean `regnum topic list`?"),
    Mistake("topics ls", "`regnum topics ls`", "--help", "`regnum topics list`"),
    Mistake("topics rm orders", "`regnum topics rm`", "--help", "`regnum topics delete TOPIC`"),
    Mistake("topics consume orders", "`regnum topics consume`", "--help", "`regnum consume TOPIC`"),
    Mistake("topics produce orders", "`regnum topics produce`", "--help", "`regnum produce TOPIC`"),
    Mistake("topics --alter --topic o --partitions 6", "`regnum topics alter`", "config set", "add-partitions"),
    Mistake("topics alter-config o", "`regnum topics alter-config`", "NAME=VALUE", "`regnum topics config set"),
    Mistake("topics trim-prefix o", "`regnum topics trim-prefix`", "--before-offset", "`regnum topics delete-records"),
    Mistake("groups desc billing", "`regnum groups desc`", "list", "did you mean `regnum groups describe`?"),
    Mistake("groups seek billing", "`regnum groups seek`", "--help", "`regnum groups reset-offsets GROUP`"),
    Mistake("cluster info", "`regnum cluster info`", "--help", "`regnum cluster describe`"),
    Mistake("cluster health", "`regnum cluster health`", "exit status", "`regnum status`"),
    Mistake("health", "`regnum health`", "exit status", "`regnum status`"),
    Mistake("container start", "`regnum container`", "`regnum down`", "`regnum up`"),
    Mistake("kafka-leader-election.sh --all", "`regnum kafka-leader-election.sh`", "--help", "elect-leaders"),
    Mistake("registry schema list", "`regnum registry`", "no schema registry", "--help"),
    Mistake("transactions list", "`regnum transactions`", "no transactions", "--help"),
    Mistake("brokers decommission 3", "`regnum brokers decommission`", "--help", "`regnum brokers drain ID`"),
    Mistake(
        "partitions elect", "`regnum partitions elect`", "reassign", "did you mean `regnum partitions elect-leaders`"
    ),
    Mistake("kafka-topics.sh --lst", "--lst", "--help", "did you mean `regnum topics list`?"),
    Mistake("ststus", "`regnum ststus`", "produce", "did you mean `regnum status`?"),
    # options
    Mistake("--bootstrap h:1 topics list", "no option --bootstrap", "behind the command", "--bootstrap ..."),
    Mistake("topics list --bootstrp h:1", "no option --bootstrp", "--prefix", "did you mean --bootstrap?"),
    Mistake("topics create o --partition 3", "no option --partition", "--assignment", "did you mean --partitions?"),
    Mistake("topics create o --replication 3", "no option --replication", "--config", "--replication-factor?"),
    Mistake("consume o --parttion 1", "no option --parttion", "--until", "did you mean --partition?"),
    Mistake("consume o --skip", "no option --skip", "--group", "did you mean --skip-unreadable?"),
    Mistake("consume o -x", "no option -x", "--max-messages", "--help"),
    Mistake("up --broker 5", "no option --broker", "--quotas", "did you mean --brokers?"),
    Mistake("groups reset-offsets g --to-begining", "no option --to-begining", "--to-latest", "--help"),
    Mistake("groups reset-offsets g --to-earlest", "no option --to-earlest", "--to-latest", "--to-earliest?"),
    Mistake("topics list --zookeeper h:2181", "--zookeeper", "talk to brokers", "--bootstrap HOST:PORT"),
    Mistake("consume o -X security.protocol=ssl", "-X is no option", "REGNUM_TLS_CA", "`regnum --tls-ca FILE"),
    Mistake("topics list --command-config c.properties", "--command-config", "REGNUM_TLS_CA", "--tls-ca FILE"),
    Mistake("consume o --property print.key=true", "--property", "--format", "`regnum consume TOPIC -k :`"),
    Mistake("consume o --isolation-level read_committed", "--isolation-level", "no transactions", "--help"),
    Mistake("consume o --timeout-ms 500", "--timeout-ms", "SECONDS", "--timeout SECONDS"),
    Mistake("produce o --key k", "--key is no option", "key:value", "`echo key:value | regnum produce TOPIC -k :`"),
    Mistake("produce o --property parse.key=true", "--property", "SEPARATOR", "`regnum produce TOPIC -k :`"),
    Mistake("topics create o --replica-assignment 1:2", "--replica-assignment", "1,2,3;2,3,1", "--assignment"),
    Mistake("topics add-partitions o --partitions 6", "--partitions is no option", "how many to add", "--count"),
    Mistake("configs alter --entity-type topics", "--entity-type", "--broker ID", "--topic NAME"),
    # values
    Mistake("consume", "TOPIC is missing", "`regnum consume TOPIC`", "--help"),
    Mistake("topics create", "TOPIC is missing", "`regnum topics create TOPIC...`", "--help"),
    Mistake("groups describe", "GROUP is missing", "`regnum groups describe GROUP`", "--help"),
    Mistake("consume orders payments", "payments is too much", "`regnum consume TOPIC`", "quotes"),
    Mistake("consume o -n", "-n needs a value", "NUMBER", "give -n NUMBER"),
    Mistake("topics create o -p", "-p needs a value", "NUMBER", "give -p NUMBER"),
    Mistake("consume o -n many", "--max-messages", "whole number", "such as 3"),
    Mistake("topics create o --partitions three", "--partitions", "whole number", "such as 3"),
    Mistake("topics list -o xml", "'xml'", "'json', 'jsonl', 'yaml'", "--help"),
    Mistake("consume o -o soon", "'soon' is no place in a log", "an offset", "-1h"),
    Mistake("consume o -f '%z'", "'%z' is not known", "%t %p %o %k %v", "use %t"),
    Mistake("produce o --acks most", "'most'", "all, 1 and 0", "none of all"),
    Mistake("produce o -z zip", "'zip' is no codec", "snappy", "give none, gzip"),
    Mistake(
        "topics create o -c retention.ms", "'retention.ms' is not NAME=VALUE", "NAME=VALUE", "min.insync.replicas=2"
    ),
    Mistake("consume o --until-end --follow", "excludes --until", "--until-end", "give one of them"),
    Mistake("configs set --topic o retention.ms 5", "'retention.ms' is not NAME=VALUE", "NAME=VALUE", "give"),
    Mistake("status --data-dir /nonexistent", "no cluster in /nonexistent", "start one", "`regnum up`", NOT_FOUND),
    # an address where no broker is: 5, for it may be started yet
    Mistake(
        "topics list --bootstrap 127.0.0.1:1 --timeout 0.5",
        "127.0.0.1:1: nothing listens there",
        "REGNUM_BOOTSTRAP",
        "check --bootstrap",
        UNAVAILABLE,
    ),
)
"""None of these needs a cluster."""

OF_A_CLUSTER: Final = (
    Mistake("topics describe ordrs", "topic 'ordrs' does not exist", "`regnum topics list`", "'orders'", NOT_FOUND),
    Mistake("consume Orders --until-end", "'Orders' does not exist", "topics list", "mean 'orders'?", NOT_FOUND),
    Mistake("groups describe bilings", "no group 'bilings'", "`regnum groups list`", "list", NOT_FOUND),
)
"""The cluster has topic ``orders``."""


def test_there_are_sixty_of_them_and_none_stands_twice() -> None:
    lines = [one.line for one in (*ALONE, *OF_A_CLUSTER)]
    assert len(set(lines)) == len(lines) >= 60


def test_a_topic_that_is_not_there_is_waited_for_less_than_an_answer_may_take() -> None:
    assert TOPIC_WAIT_S + LOOKING_S <= ANSWERED_S


def words_of(line: str) -> list[str]:
    return [word.strip("'") for word in line.split()]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders")
        yield running


async def _untold(regnum: CommandHere, mistake: Mistake, *, alone: bool) -> str:
    """What is missing in the answer; empty: nothing."""
    began_s = time.process_time()
    words = words_of(mistake.line)
    ran = await (regnum.alone(*words) if alone else regnum(*words))
    took_s = time.process_time() - began_s
    missing = [one for one in (mistake.wrong, mistake.valid, mistake.hint) if one not in ran.err]
    if ran.status == mistake.status and not missing and took_s < ANSWERED_S and not ran.out:
        return ""
    return f"regnum {mistake.line}: status {ran.status}, {took_s:.2f} s, without {missing}: {ran.out}{ran.err}"


async def test_every_mistake_is_answered_with_what_is_wrong_what_is_valid_and_what_to_try() -> None:
    regnum = CommandHere("127.0.0.1:1")
    untold = [await _untold(regnum, one, alone=True) for one in ALONE]
    assert [one for one in untold if one] == []


async def test_names_that_are_not_there_are_answered_with_those_that_are_alike(cluster: FakeCluster) -> None:
    regnum = CommandHere(cluster.bootstrap)
    untold = [await _untold(regnum, one, alone=False) for one in OF_A_CLUSTER]
    assert [one for one in untold if one] == []
