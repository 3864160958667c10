"""Choice of the driver by the scheme of a URL: the only place that knows the drivers."""

from regnum_coordination.port import Store


async def open_store(url: str, *, session_timeout_s: float = 6.0, operation_timeout_s: float = 5.0) -> Store:
    """Open a session with the store at ``url``.

    Args:
        url: ``etcd://host:port[,host:port...][/prefix]`` or ``memory://name`` (one process; tests and simulation).
        session_timeout_s: seconds after which the store ends the session of a process that is gone.
        operation_timeout_s: seconds after which an operation without an answer is a ConnectionLoss.

    Raises:
        ValueError: no driver for the scheme, or the URL is malformed; the message says which forms there are.
        ConnectionLoss: no store answers.
    """
    raise NotImplementedError
