"""What judges of records raise: a failure that no slow machine makes, and that no second run of a test excuses."""


class HarmedError(AssertionError):
    """What was promised to be kept is lost, doubled, out of order or elsewhere. The message says what was found."""


def unharmed(holds: object, found: object) -> None:
    """Raise HarmedError that says what was found, unless it holds."""
    if not holds:
        raise HarmedError(str(found))


def is_harm(error: BaseException | None) -> bool:
    """Whether a judge raised it, or raised what it came with: a group has others beside it, a clean-up fails after."""
    if error is None or isinstance(error, HarmedError):
        return error is not None
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return any(is_harm(one) for one in (*inside, error.__cause__, error.__context__))
