"""What callers may give: settings, arguments, and values in them are what their annotations say, or refused at once.

Python takes anything for anything, and what is wrong shows later, elsewhere: a str for a sequence of names is as many
names as it has letters, True is 1, a misspelt policy is none at all, NaN is neither below nor above a limit.
So the annotation of a field or a parameter is the rule, bounds in it (``Annotated[float, Between(0)]``) as well, and
there is no second text of it. The message says what is allowed.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SHOWN_MAX: Final = 100
"""Characters of what was given that a message shows."""
_TEXTS: Final = (str, bytes, bytearray, memoryview)
_WORDS: Final[Mapping[object, str]] = types.MappingProxyType(
    {
        bool: "True or False",
        int: "a whole number",
        float: "a number",
        str: "a str",
        bytes: "bytes",
        type(None): "None",
    }
)

_HINTS: Final[dict[type, Mapping[str, Any]]] = {}
"""By class: to read annotations takes a hundred times as long as to look at what was given."""
_FIELDS: Final[dict[type, tuple[frozenset[type], ...]]] = {}
"""Of named tuples: plain types of their fields."""
_KINDS: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)
_COLLECTIONS: Final[Mapping[object, str]] = types.MappingProxyType({tuple: "tuple", Sequence: "sequence"})


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a number, in an annotation.

    >>> Between(0, above=True).words
    'above 0'
    """

    least: float
    """It is no less than this."""
    most: float = math.inf
    """Nor more than this."""
    above: bool = False
    """It is not ``least`` either."""

    @property
    def words(self) -> str:
        """What is allowed."""
        below = "" if self.most == math.inf else f" and at most {self.most:g}"
        return f"{'above' if self.above else 'at least'} {self.least:g}{below}"

    def holds(self, value: Any) -> bool:
        """Whether a number is within."""
        return self.least <= value <= self.most and not (self.above and value == self.least)


def check_fields(given: Any) -> None:
    """Refuse an instance of a dataclass of which a field is not what its annotation says.

    Raises INVALID_CONFIG: which field, what was given, and what is allowed.
    """
    for name, annotation in _hints(type(given)).items():
        _check(f"{type(given).__name__}.{name}", annotation, getattr(given, name))


def checked(function: F, bounds: Mapping[str, Between] = types.MappingProxyType({})) -> F:
    """A function that refuses arguments which are not what their annotations say. Raises INVALID_CONFIG.

    ``bounds``: of parameters by name, besides those in annotations.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check_arguments(function, bounds, args, kwargs)
        return function(*args, **kwargs)

    @functools.wraps(function)
    async def call_and_wait(*args: Any, **kwargs: Any) -> Any:
        _check_arguments(function, bounds, args, kwargs)
        return await function(*args, **kwargs)

    return call_and_wait if inspect.iscoroutinefunction(function) else call  # type: ignore[return-value]


def checks_arguments(
    *, but: Collection[str] = (), bounds: Mapping[str, Between] = types.MappingProxyType({})
) -> Callable[[type[T]], type[T]]:
    """Decorator of a class whose constructor and public methods refuse what is not what their annotations say.

    Args:
        but: methods that look at their arguments themselves, because they are called very often.
        bounds: of all parameters of that name.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")) and name not in but:
                setattr(cls, name, checked(method, bounds))
        return cls

    return decorate


def _check_arguments(
    function: Callable[..., Any], bounds: Mapping[str, Between], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    known = _parameters(function)
    plain, positional = known.plain, known.positional
    # What is plain is passed by in as little time as can be: some of these are called for every record.
    for name, value in zip(positional, args, strict=False):
        if name in plain and (name in bounds or type(value) not in plain[name] or not _has_plain_fields(value)):
            _look(name, known.hints[name], bounds, value)
    for name, value in kwargs.items():
        if name in plain and name not in bounds and type(value) in plain[name] and _has_plain_fields(value):
            continue
        hint = known.hints.get(name, known.others)
        # (What has none is a mistake that Python tells by itself, with the name of the function.)
        if hint is not None:
            _look(name, hint, bounds, value)
    if known.rest in known.hints:
        for one in args[len(positional) :]:
            _look(known.rest, known.hints[known.rest], bounds, one)


def _look(name: str, hint: Any, bounds: Mapping[str, Between], value: Any) -> None:
    _check(name, Annotated[hint, bounds[name]] if name in bounds and value is not None else hint, value)


@dataclasses.dataclass(frozen=True, slots=True)
class _Parameters:
    """What a function takes, looked up once: to read a signature takes a hundred times as long as to look at values."""

    positional: tuple[str, ...]
    """Names of those that may be given by their places."""
    rest: str
    """Name of what takes all others by place; empty: nothing does."""
    others: Any
    """Annotation of what takes all others by name; None: nothing does."""
    hints: Mapping[str, Any]
    """Annotations, by name."""
    plain: Mapping[str, frozenset[type]]
    """By name, the types whose values need no closer look."""


@functools.cache
def _parameters(function: Callable[..., Any]) -> _Parameters:
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    of_kind = {kind: [one.name for one in parameters if one.kind is kind] for kind in _KINDS}
    rest, others = of_kind[inspect.Parameter.VAR_POSITIONAL], of_kind[inspect.Parameter.VAR_KEYWORD]
    known = {one.name: hints[one.name] for one in parameters if one.name in hints and one.name not in others}
    return _Parameters(
        positional=tuple(of_kind[inspect.Parameter.POSITIONAL_ONLY] + of_kind[inspect.Parameter.POSITIONAL_OR_KEYWORD]),
        rest=rest[0] if rest else "",
        others=hints.get(others[0]) if others else None,
        hints=known,
        plain={name: plain_types(hint) for name, hint in known.items()},
    )


def plain_types(annotation: Any) -> frozenset[type]:
    """Types whose values are what an annotation says, whatever they are; of named tuples, where their fields are."""
    inside = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return frozenset[type]().union(*map(plain_types, inside))
    if annotation in (str, int, bool, bytes, None, type(None)):
        return frozenset({type(None) if annotation is None else annotation})
    if inspect.isclass(annotation) and issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        if annotation not in _FIELDS:
            _FIELDS[annotation] = tuple(map(plain_types, _hints(annotation).values()))
        return frozenset({annotation})
    return frozenset()


def _has_plain_fields(value: Any) -> bool:
    """Of a value of a plain type; anything but a named tuple has none."""
    fields = _FIELDS.get(type(value))
    if fields is not None:
        for one, types_of_it in zip(value, fields, strict=True):
            if type(one) not in types_of_it:
                return False
    return True


def _check(name: str, annotation: Any, value: Any) -> None:
    wrong = _wrong(annotation, value, name)
    if wrong is not None:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_CONFIG, wrong)


def _hints(cls: Any) -> Mapping[str, Any]:
    """Annotations of the fields of a dataclass or a named tuple."""
    known = _HINTS.get(cls)
    if known is None:
        hints = get_type_hints(cls, include_extras=True)
        names = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else cls._fields
        known = _HINTS[cls] = {name: hints[name] for name in names if name in hints}
    return known


def _wrong(annotation: Any, value: Any, name: str) -> str | None:
    """What is wrong with a value, and what is allowed; None: nothing is."""
    if not _fits(annotation, value):
        shown = repr(value)
        shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
        example = f", as in [{shown}]" if isinstance(value, str) and _fits(annotation, [value]) else ""
        return f"{name} is {shown}; give {words(annotation)}{example}"
    return _wrong_within(annotation, value, name)


def _fits(annotation: Any, value: Any) -> bool:
    """Whether a value is of a kind; what is in it, where it holds others, is another question."""
    if isinstance(annotation, NewType):
        return _fits(annotation.__supertype__, value)
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [bound for bound in inside[1:] if isinstance(bound, Between)]
        return _fits(inside[0], value) and all(bound.holds(value) for bound in bounds)
    if origin is Union or origin is types.UnionType:
        return any(_fits(one, value) for one in inside)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inside)
    if origin is not None and inspect.isclass(origin):
        return isinstance(value, origin) and not (isinstance(value, _TEXTS) and issubclass(origin, Iterable))
    return _is_of(annotation, value)


def _is_of(kind: Any, value: Any) -> bool:
    fits = True
    if kind is bool or kind is None or kind is type(None):
        fits = isinstance(value, bool if kind is bool else type(None))
    elif kind is int:
        fits = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    elif kind is float:
        fits = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    elif kind is bytes:
        fits = isinstance(value, bytes | bytearray | memoryview)
    elif inspect.isclass(kind) and kind is not Any and not getattr(kind, "_is_protocol", False):
        fits = isinstance(value, kind)
    return fits


def _wrong_within(annotation: Any, value: Any, name: str) -> str | None:
    """What is wrong with what a value of the right kind holds."""
    origin, inside = get_origin(annotation), get_args(annotation)
    within: Iterable[tuple[Any, Any, str]] = ()
    if origin is Annotated:
        return _wrong_within(inside[0], value, name)
    if origin is Union or origin is types.UnionType:
        return next((_wrong_within(one, value, name) for one in inside if _fits(one, value)), None)
    if hasattr(type(value), "__annotations__") and (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        within = ((hint, getattr(value, key), f"{name}.{key}") for key, hint in _hints(type(value)).items())
    elif isinstance(value, Mapping) and len(inside) == 2:
        within = (
            pair
            for key, one in value.items()
            for pair in ((inside[0], key, name), (inside[1], one, f"{name}[{key!r}]"))
        )
    elif isinstance(value, tuple) and origin is tuple and inside[-1:] != (...,):
        if len(value) != len(inside):
            return f"{name} is {value!r}; give {words(annotation)}"
        within = ((inside[at], one, f"{name}[{at}]") for at, one in enumerate(value))
    elif isinstance(value, Collection) and inside and origin is not None:
        within = ((inside[0], one, f"{name}[{at}]") for at, one in enumerate(value))
    return next((wrong for rule, one, at in within if (wrong := _wrong(rule, one, at)) is not None), None)


def words(annotation: Any) -> str:
    """What an annotation allows, in words."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, NewType):
        text = words(annotation.__supertype__)
    elif origin is Annotated:
        text = " ".join([words(inside[0]), *(one.words for one in inside[1:] if isinstance(one, Between))])
    elif origin is Union or origin is types.UnionType:
        text = " or ".join(map(words, inside))
    elif origin is Literal:
        text = " or ".join(map(repr, inside))
    elif origin is tuple and inside[-1:] != (...,):
        text = f"a tuple of {', '.join(map(words, inside))}"
    elif origin is Callable:
        text = "a function"
    elif inspect.isclass(origin) and issubclass(origin, Mapping):
        text = f"a mapping of {words(inside[0])} to {words(inside[1])}"
    elif inspect.isclass(origin) and issubclass(origin, Iterable):
        text = f"a {_COLLECTIONS.get(origin, 'collection')} of {words(inside[0]).removeprefix('a ')}"
    elif inspect.isclass(annotation) and issubclass(annotation, Enum):
        text = " or ".join(map(str, annotation))
    else:
        text = _WORDS.get(annotation) or str(getattr(annotation, "__name__", annotation))
    return text
