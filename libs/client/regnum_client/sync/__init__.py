"""The SDK for services without asyncio: ``Admin``, ``Producer``, ``Consumer``, each in front of the async class.

    from regnum_client.sync import Producer

    with Producer() as producer:
        delivery = producer.send("greetings", b"hello", key=b"world")
        print(delivery.result(timeout=30).offset)

Threads: all methods may be called from any thread, and they block only the one that calls. All clients of a process
share one background thread with one event loop, which begins with the first client that opens and ends with the last
that closes.

Forks: gRPC and threads do not survive ``os.fork``. A client that was open then is refused in the child, with a clear
error, and ``close`` does nothing there; open clients in the child, best after the fork only (gunicorn: post_fork).
Who forks while clients are open sets GRPC_ENABLE_FORK_SUPPORT=0: gRPC's own handlers of forks do not know of event
loops, and half of such children ended with a segmentation fault.

Signals: Python handles them in the main thread, which waits here so that it can: Ctrl-C ends a call with
KeyboardInterrupt, and what the call was doing is cancelled. Records that had just come are not lost by that, the next
read has them.

Time-outs are those of the async classes (their settings), of ``Future.result`` and of ``flush`` and ``close``.

Exit: the background thread is a daemon, so a client that was never closed does not keep a process alive, and what it
had not yet sent is lost with it. Use ``with``.
"""

from regnum_client.sync.admin import Admin
from regnum_client.sync.consumer import Consumer
from regnum_client.sync.listener import RebalanceListener
from regnum_client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Producer", "RebalanceListener"]
