"""Where a process shows its metrics: as told, or an error says what to do; and nothing is left behind at its end."""

import gc
import re
import socket
from contextlib import closing

import pytest
from regnum_model.nodes import Address
from regnum_service.collection_pauses import CollectionPauses
from regnum_service.errors import PortTakenError
from regnum_service.metrics import serve_metrics
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.direct_http import opened_directly
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S


def told(listen: str | None) -> ServiceSettings:
    return ServiceSettings(coordination="etcd://127.0.0.1:1", metrics_listen=listen)


def measuring() -> int:
    """How many measure collections."""
    return sum(isinstance(callback, CollectionPauses) for callback in gc.callbacks)


def fetched(address: Address) -> str:
    with opened_directly(f"http://{address}/metrics", timeout=DEADLINE_S) as answer:
        text: str = answer.read().decode()
        return text


async def test_metrics_are_shown_where_told_until_the_end_and_nothing_is_measured_afterwards() -> None:
    supervisor, metrics, before = Supervisor("test"), Metrics(), measuring()
    metrics.histogram(instruments.LOOP_LAG, "main").record(0.001)
    address = serve_metrics("regnum-test", 3, told(f"127.0.0.1:{unused_port()}"), metrics, supervisor=supervisor)
    assert address is not None
    text = fetched(address)
    # (Another test of this process may have named a cluster.)
    assert re.search(r'^regnum_loop_lag_seconds_count\{(cluster="[^"]*",)?loop="main"\} 1.0$', text, re.MULTILINE)
    assert 'service_instance_id="3"' in text
    assert measuring() == before + 1
    await supervisor.unwind()
    assert measuring() == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address.host, address.port), timeout=DEADLINE_S)


async def test_a_port_that_is_taken_is_refused_with_what_to_do_and_nothing_is_left_running() -> None:
    supervisor, before = Supervisor("test"), measuring()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortTakenError, match=f"{listen}.*--metrics-listen.*choose another"):
            serve_metrics("regnum-test", 3, told(listen), Metrics(), supervisor=supervisor)
    assert measuring() == before
    await supervisor.unwind()


async def test_without_an_address_there_is_no_listener_and_nothing_is_measured() -> None:
    before = measuring()
    assert serve_metrics("regnum-test", 3, told(None), Metrics(), supervisor=Supervisor("test")) is None
    assert measuring() == before
