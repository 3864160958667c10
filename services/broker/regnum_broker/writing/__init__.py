"""What the writer of a log directory hands on: it waits for no disk that others may wait for."""
