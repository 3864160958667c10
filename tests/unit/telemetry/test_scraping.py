"""The endpoint that Prometheus scrapes: its answers, and what others cannot do to it."""

import queue
import socket
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from regnum_telemetry.scraping import CONNECTIONS_MAX, HEAD_BYTES_MAX, OPENMETRICS, MetricsEndpoint
from regnum_testing.direct_http import opened_directly
from regnum_testing.waiting import DEADLINE_S


@contextmanager
def endpoint(
    render: Callable[[str], tuple[bytes, str]] = lambda accept: (f"for {accept!r}\n".encode(), "text/plain"),
    *,
    deadline_s: float = DEADLINE_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[MetricsEndpoint]:
    serving = MetricsEndpoint("127.0.0.1", 0, render, deadline_s=deadline_s, monotonic=monotonic)
    serving.start()
    try:
        yield serving
    finally:
        serving.close()


def fetched(serving: MetricsEndpoint, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{serving.port}{path}", headers=headers)
    try:
        with opened_directly(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def connected(serving: MetricsEndpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", serving.port), timeout=DEADLINE_S)


def raw(serving: MetricsEndpoint, request: bytes) -> bytes:
    with closing(connected(serving)) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer


def test_metrics_are_where_prometheus_looks_for_them_in_the_form_it_asks_for() -> None:
    with endpoint() as serving:
        assert fetched(serving) == (200, b"for ''\n")
        assert fetched(serving, Accept="application/openmetrics-text;version=1.0.0;q=0.6,*/*;q=0.1") == (
            200,
            f"for {OPENMETRICS!r}\n".encode(),
        )


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", 200),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 200),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n", 400),
    ],
)
def test_other_requests_are_told_what_there_is(request_head: bytes, status: int) -> None:
    with endpoint() as serving:
        answer = raw(serving, request_head)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert answer.endswith(b"\r\n\r\n") == request_head.startswith(b"HEAD")


def test_who_asks_a_thousand_times_a_second_gets_the_same_text() -> None:
    with endpoint() as serving:
        assert {fetched(serving) for _ in range(20)} == {(200, b"for ''\n")}
        # One for each half second that this took, however slow the machine.
        assert serving.renderings < 20


def test_silent_connections_are_closed_in_time_and_sooner_where_others_come() -> None:
    with endpoint(deadline_s=1.0) as serving:
        silent = [connected(serving) for _ in range(CONNECTIONS_MAX)]
        # Long before any of them has been given up.
        assert fetched(serving)[0] == 200
        assert silent[0].recv(1) == b"", "the oldest made room"
        for connection in silent[1:]:
            assert connection.recv(1) == b""
        for connection in silent:
            connection.close()


def test_silent_connections_that_come_again_and_again_keep_no_scrape_out() -> None:
    with endpoint() as serving, ExitStack() as ends:
        silent: list[socket.socket] = []

        def come_again() -> None:
            silent.extend(ends.enter_context(closing(connected(serving))) for _ in range(CONNECTIONS_MAX + 5))

        come_again()
        for _ in range(3):
            assert fetched(serving)[0] == 200
            come_again()
        assert fetched(serving)[0] == 200


def test_who_has_asked_keeps_the_place_while_the_text_is_made() -> None:
    asked, made = threading.Event(), threading.Event()

    def render(_accept: str) -> tuple[bytes, str]:
        asked.set()
        assert made.wait(DEADLINE_S)
        return b"late", "text/plain"

    with endpoint(render) as serving, ExitStack() as ends:
        scrape = ends.enter_context(closing(connected(serving)))
        scrape.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert asked.wait(DEADLINE_S)
        silent = [ends.enter_context(closing(connected(serving))) for _ in range(CONNECTIONS_MAX)]
        assert silent[0].recv(1) == b"", "a silent one made room, though it came later"
        made.set()
        answer = b""
        while part := scrape.recv(4096):
            answer += part
        assert answer.endswith(b"late")


def test_who_sends_a_byte_now_and_then_is_hung_up_on_as_one_who_says_nothing() -> None:
    with endpoint(deadline_s=0.3) as serving, closing(connected(serving)) as connection:
        connection.settimeout(0.05)
        said: bytes | None = None
        for _ in range(round(DEADLINE_S / 0.05)):
            with suppress(TimeoutError):
                try:
                    connection.sendall(b"G")
                    said = connection.recv(1)
                except ConnectionError:
                    said = b""
            if said is not None:
                break
        assert said == b""


def test_a_head_without_end_is_cut_off() -> None:
    with endpoint() as serving, closing(connected(serving)) as connection:
        try:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX)
            assert connection.recv(1) == b""
        except ConnectionError:
            return


def test_a_text_is_made_by_one_thread_at_a_time_and_not_by_the_one_that_accepts() -> None:
    busy, most, threads = 0, 0, set()

    def render(_accept: str) -> tuple[bytes, str]:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        threads.add(threading.current_thread().name)
        busy -= 1
        return b"", "text/plain"

    with endpoint(render) as serving:
        asking = [threading.Thread(target=fetched, args=(serving,)) for _ in range(CONNECTIONS_MAX)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert (most, threads) == (1, {"metrics-answer"})


def test_a_port_that_is_taken_is_an_error_at_the_start() -> None:
    with endpoint() as serving, pytest.raises(OSError, match="in use"):
        MetricsEndpoint("127.0.0.1", serving.port, lambda _accept: (b"", "")).start()


def test_nobody_is_answered_after_the_end() -> None:
    with endpoint() as serving:
        port = serving.port
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)


def test_readers_that_never_read_share_one_text_are_given_up_and_others_are_answered() -> None:
    page, now_s = b"x" * (32 * 1024 * 1024), 0.0
    with endpoint(lambda _accept: (page, "text/plain"), deadline_s=1.0, monotonic=lambda: now_s) as serving:
        stuck = [connected(serving) for _ in range(CONNECTIONS_MAX)]
        for connection in stuck:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        for connection in stuck:
            assert connection.recv(1) == b"H", "its answer has begun"
        assert serving.renderings == 1, "no time has passed"
        now_s += 1.0
        assert len(fetched(serving)[1]) == len(page)
        assert serving.renderings == 2
        for connection in stuck:
            read = 0
            with closing(connection), suppress(ConnectionError):
                while part := connection.recv(65_536):
                    read += len(part)
            assert read < len(page), "it was given up"


@pytest.fixture
def ended_with() -> Iterator[queue.SimpleQueue[str]]:
    """Errors that threads ended with, as the interpreter tells them."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    before = threading.excepthook
    threading.excepthook = lambda ended: told.put(f"{ended.thread.name if ended.thread else ''}: {ended.exc_value}")
    yield told
    threading.excepthook = before


@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_a_text_that_cannot_be_made_is_an_answer_and_what_its_thread_ends_with(
    error: type[Exception], ended_with: queue.SimpleQueue[str]
) -> None:
    broken = [True]

    def render(_accept: str) -> tuple[bytes, str]:
        if broken[0]:
            raise error("a gauge is broken")
        return b"well", "text/plain"

    with endpoint(render) as serving:
        for _ in range(CONNECTIONS_MAX + 2):
            assert raw(serving, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 500 ")
            assert ended_with.get(timeout=DEADLINE_S) == "metrics-answer: a gauge is broken"
        broken[0] = False
        assert fetched(serving) == (200, b"well")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("::", ("127.0.0.1", "[::1]")),
        ("0.0.0.0", ("127.0.0.1", "[::1]")),  # noqa: S104 - where the manifests listen
        ("::1", ("[::1]",)),
        ("localhost", ("127.0.0.1",)),
    ],
)
def test_all_addresses_are_those_of_both_families(host: str, reached: tuple[str, ...]) -> None:
    serving = MetricsEndpoint(host, 0, lambda _accept: (b"text", "text/plain"))
    serving.start()
    with closing(serving):
        for at in reached:
            with opened_directly(f"http://{at}:{serving.port}/metrics", timeout=DEADLINE_S) as answer:
                assert answer.read() == b"text"
