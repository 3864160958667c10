"""What operators write and read: settings and log lines."""

import json
import logging
import sys
import threading

import pytest
import structlog
from regnum_model.nodes import Address
from regnum_service import logs
from regnum_service.settings import AddressText, ServiceSettings, advertised, load


class BrokerSettings(ServiceSettings):
    """As a service would have them."""

    broker_id: int
    client_listen: AddressText = "127.0.0.1:9092"


GOOD = ["--broker-id", "3", "--coordination", "etcd://127.0.0.1:2379"]


def refused(arguments: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as caught:
        load(BrokerSettings, arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_flags_before_variables_before_defaults(monkeypatch):
    monkeypatch.setenv("REGNUM_BROKER_ID", "4")
    monkeypatch.setenv("REGNUM_LOG_LEVEL", "debug")
    settings = load(BrokerSettings, GOOD)
    assert (settings.broker_id, settings.log_level, settings.session_timeout_s) == (3, "debug", 6.0)


def test_unknown_variables_of_other_parts_do_no_harm(monkeypatch):
    monkeypatch.setenv("REGNUM_BOOTSTRAP", "127.0.0.1:1")
    assert load(BrokerSettings, GOOD).broker_id == 3


def test_errors_name_flag_and_variable(capsys):
    error = refused(["--broker-id", "x"], capsys)
    assert "--broker-id (or REGNUM_BROKER_ID): Input should be a valid integer" in error
    assert "--coordination (or REGNUM_COORDINATION): Field required" in error
    assert "--help" in error


def test_unknown_flags_are_refused(capsys):
    assert "--nope" in refused([*GOOD, "--nope", "1"], capsys)


def test_addresses_are_checked(capsys):
    assert "'nonsense' is not host:port" in refused([*GOOD, "--client-listen", "nonsense"], capsys)


def test_a_session_too_short_for_etcd_is_refused(capsys):
    assert "etcd needs at least 5" in refused([*GOOD, "--session-timeout-s", "4.9"], capsys)
    assert load(BrokerSettings, [*GOOD, "--session-timeout-s", "5"]).session_timeout_s == 5
    memory = ["--broker-id", "3", "--coordination", "memory://x", "--session-timeout-s", "1"]
    assert load(BrokerSettings, memory).session_timeout_s == 1


def test_every_setting_has_a_description():
    assert all(field.description for field in ServiceSettings.model_fields.values())


@pytest.fixture
def restore_logging():
    root = logging.getLogger()
    handlers, level, hook = list(root.handlers), root.level, threading.excepthook
    yield
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_lines_are_json_with_service_level_and_facts(capsys, restore_logging):
    logs.configure("broker", "info")
    log = structlog.get_logger("x")
    log.info("broker fenced", broker_id=3)
    log.debug("not shown")
    logging.getLogger("library").warning("odd %s", "thing")
    logging.getLogger("library").info("not shown")
    log.error("failed", exc_info=ValueError("boom"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"], line["service"]) for line in lines] == [
        ("broker fenced", "info", "broker"),
        ("odd thing", "warning", "broker"),
        ("failed", "error", "broker"),
    ]
    assert lines[0]["broker_id"] == 3
    assert lines[0]["timestamp"].endswith("Z")
    assert "ValueError: boom" in lines[2]["exception"]


def test_a_thread_that_ends_with_an_error_is_a_line(capsys, restore_logging):
    def fails():
        raise RuntimeError("boom")

    logs.configure("broker", "info")
    for thread in threading.Thread(target=fails, name="metrics-answer"), threading.Thread(target=sys.exit):
        thread.start()
        thread.join()
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["service"], line["thread"]) == (
        "a thread ended with an error",
        "error",
        "broker",
        "metrics-answer",
    )
    assert "RuntimeError: boom" in line["exception"]


class AdvertisingSettings(BrokerSettings):
    """As a service has them whose listeners are reached at other addresses than it binds."""

    client_advertised: AddressText | None = None


def test_a_listener_everywhere_needs_an_address_to_advertise(capsys):
    everywhere = [*GOOD, "--client-listen", "0.0.0.0:9092"]
    assert "give --client-advertised" in refused(everywhere, capsys)
    with pytest.raises(SystemExit):
        load(AdvertisingSettings, everywhere)
    with pytest.raises(SystemExit):
        load(AdvertisingSettings, [*everywhere, "--client-advertised", "[::]:9092"])
    assert load(AdvertisingSettings, [*everywhere, "--client-advertised", "broker-0.broker:9092"]).client_advertised


def test_what_is_advertised_is_what_was_told_or_where_it_listens():
    listener = Address(host="10.0.0.7", port=9092)
    assert advertised(None, listener) == listener
    assert advertised("broker-0.broker:9092", listener) == Address(host="broker-0.broker", port=9092)
