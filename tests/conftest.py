"""What holds for every test."""

import signal

# A shell starts a background job with SIGINT ignored, and a process hands that on to all that it starts: tests that
# interrupt a command would wait for ever. Whatever started the tests, the processes that they start hear SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
