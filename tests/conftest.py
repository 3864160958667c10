"""What holds for every test."""

import gc
import signal

# A shell starts a background job with SIGINT ignored, and a process hands that on to all that it starts: tests that
# interrupt a command would wait for ever. Whatever started the tests, the processes that they start hear SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Three thousand collected tests stay until the end: the garbage collector need not look through them each time.

    It would, in the middle of a test, and where a dozen processes share two processors that takes seconds.
    """
    gc.collect()
    gc.freeze()
