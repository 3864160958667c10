"""Servers as URLs name them: ``host``, ``host:port``, ``[address]``, ``[address]:port``. Pure."""

from regnum_model.nodes.processes import split


def parse_endpoint(text: str, *, default_port: int, url: str, form: str) -> tuple[str, int]:
    """Host and port of one server.

    Args:
        text: what the URL says.
        default_port: where it says none.
        url: the URL as messages may show it.
        form: how such URLs are written, for messages.

    Raises ValueError.
    """
    try:
        host, port = split(text, default_port=default_port)
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}; {form}") from None
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"{url!r}: {host!r} cannot be the name of a host; {form}") from None
    return host, port
