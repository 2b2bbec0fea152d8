"""Values as JSON and back: a form says once which keys there are, and both ways follow from it.

::

    TAINT = record(Taint, key=TEXT, value=TEXT, effect=TEXT)
    TAINT.write(Taint(key="a"))  # {"key": "a", "value": "", "effect": "NoSchedule"}
    Codec(TAINT).read({"key": "a", "value": "", "effect": "NoSchedule"}, "the taint")

The values are the frozen dataclasses that the rest of the program works with; they know nothing of JSON. Pydantic's
validator reads: all of it is checked, and an error says where and what. Nothing is converted by guessing: a number is
no text. Amounts, money and durations are text, because a JSON number would not stay exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from pydantic_core import CoreSchema, PydanticCustomError, SchemaValidator, ValidationError, core_schema

from cloudgraft.sdk.duration import format_duration, parse_duration
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How one kind of value looks in JSON."""

    schema: CoreSchema  # by which it is read
    write: Callable[[Any], Any]

    def then(self, make: Callable[[T], Any]) -> CoreSchema:
        """Reads the same, and makes something of it; a ValueError says what is wrong with it."""
        return core_schema.no_info_after_validator_function(make, self.schema)


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an object, where it is not simply a field that must be there."""

    form: Form[Any]
    name: str = ""  # empty: as the field is called
    of: str | Callable[[Any], Any] = ""  # where the value has it, such as "group.id"; empty: the field
    may_miss: bool = False  # then the value's own default holds
    leaves_out: tuple[object, ...] = ()  # what is not written


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """The first thing that is wrong with what was read."""

    path: tuple[str | int, ...]
    kind: str  # a word of pydantic's
    value: object
    expected: str = ""  # where a form says it: see expecting()
    error: Exception | None = None  # of a parser, or of whoever makes the value
    unknown_key: str | None = None  # of the object at this place
    known: Sequence[str] = ()  # keys that it may have

    @property
    def place(self) -> str:
        """Where it is, such as ``taints[0].key``."""
        steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path]
        return "".join(steps).removeprefix(".")

    @property
    def is_missing(self) -> bool:
        """Whether there is nothing at all."""
        return self.kind == "missing" or self.value is None


class Codec(Generic[T]):
    """Reads and writes the objects of one form. ``explain`` makes the error of what is wrong and of what was read."""

    def __init__(self, form: Form[T], explain: Callable[[str, Mistake], CloudgraftError] | None = None) -> None:
        self._write = form.write
        self._validate = SchemaValidator(form.schema).validate_python
        self._explain = explain or _unreadable

    def write(self, value: T) -> dict[str, object]:
        """The value as an object of JSON."""
        written: dict[str, object] = self._write(value)
        return written

    def read(self, data: object, what: str) -> T:
        """The value that was written; ``what`` says in messages what was read."""
        try:
            found: T = self._validate(data)
        except ValidationError as error:
            raise self._explain(what, _first(error)) from None  # the cause would carry the values
        return found


def _first(error: ValidationError) -> Mistake:
    first = error.errors(include_url=False)[0]
    about = first.get("ctx", {})
    return Mistake(
        path=first["loc"],
        kind=first["type"],
        value=first["input"],
        expected=about.get("expected", ""),
        error=about.get("error"),
        unknown_key=about.get("key"),
        known=about.get("known", ()),
    )


def _unreadable(what: str, mistake: Mistake) -> CloudgraftError:
    if mistake.is_missing:
        why = "is missing"
    else:
        why = (
            f"is wrong: {mistake.error}" if mistake.error else f"is of the wrong kind ({type(mistake.value).__name__})"
        )
    return InvalidArgumentError(f"{what} cannot be read: {mistake.place} {why}")


# -- forms of forms ----------------------------------------------------------------------------------------------------


def _same(value: T) -> T:
    return value


def parsed(parse: Callable[[str], T], write: Callable[[T], str] = str) -> Form[T]:
    """Text that means something else; a ValueError of ``parse`` says what is wrong with it."""
    return Form(TEXT.then(parse), write)


def taken(convert: Callable[[Any], T], write: Callable[[T], Any] = _same) -> Form[T]:
    """Whatever JSON has, as ``convert`` understands it; a ValueError says what is wrong with it."""
    return Form(core_schema.no_info_plain_validator_function(convert), write)


def maybe(form: Form[T]) -> Form[T | None]:
    """Null for None."""
    return Form(core_schema.nullable_schema(form.schema), lambda value: None if value is None else form.write(value))


def expecting(words: str, form: Form[T]) -> Form[T]:
    """The same, with words for what must be there, such as "a text that is not empty"."""
    about: dict[str, str | int | float] = {"expected": words}
    schema = core_schema.custom_error_schema(
        form.schema, "expected", custom_error_message="must be {expected}", custom_error_context=about
    )
    return Form(schema, form.write)


def chosen(first: Form[Any], second: Form[T]) -> Form[T]:
    """What passes the first, as the second reads it."""
    return Form(core_schema.chain_schema([first.schema, second.schema]), second.write)


def items(form: Form[T]) -> Form[Sequence[T]]:
    """A list; a tuple once it is read."""
    schema = core_schema.list_schema(form.schema, strict=True, fail_fast=True)  # one mistake is told of
    write = form.write
    return Form(
        core_schema.no_info_after_validator_function(tuple, schema), lambda values: [write(value) for value in values]
    )


def entries(form: Form[T]) -> Form[Mapping[str, T]]:
    """An object with keys of any name."""
    schema, write = core_schema.dict_schema(TEXT.schema, form.schema), form.write
    if write is _same:
        return Form(schema, dict)
    return Form(schema, lambda found: {key: write(value) for key, value in found.items()})


def record(
    make: Callable[..., T],
    given: Mapping[str, Form[Any] | Key] | None = None,
    /,
    *,
    spelling: Callable[[str], str] = str,
    is_closed: bool = False,
    missing_is_null: bool = False,
    **fields: Form[Any] | Key,
) -> Form[T]:
    """An object with these keys, and with those given; ``make`` gets the values by the names of the fields.

    Where null is allowed, ``make`` is not given it: its default holds. One that ``is_closed`` may have no other keys.
    """
    found = {**(given or {}), **fields}
    keys = {name: each if isinstance(each, Key) else Key(each) for name, each in found.items()}
    spelt = {name: key.name or spelling(name) for name, key in keys.items()}
    names = {key: name for name, key in spelt.items()}

    def field(key: Key) -> core_schema.TypedDictField:
        if not missing_is_null:
            return core_schema.typed_dict_field(key.form.schema, required=not key.may_miss)
        schema = core_schema.with_default_schema(key.form.schema, default=None, validate_default=True)
        return core_schema.typed_dict_field(schema, required=False)

    def read(values: dict[str, Any]) -> T:
        if is_closed and not values.keys() <= names.keys():
            strange = next(key for key in values if key not in names)
            raise PydanticCustomError("unknown_key", "unknown key", {"key": strange, "known": list(names)})
        return make(**{names[key]: value for key, value in values.items() if value is not None})

    writers = [
        (spelt[name], attrgetter(key.of or name) if isinstance(key.of, str) else key.of, key.form.write, key.leaves_out)
        for name, key in keys.items()
    ]

    def write(value: T) -> dict[str, Any]:
        written = {}
        for key, get, form, left_out in writers:
            own = get(value)
            if not left_out or own not in left_out:
                written[key] = form(own)
        return written

    schema = core_schema.typed_dict_schema(
        {spelt[name]: field(key) for name, key in keys.items()}, extra_behavior="allow" if is_closed else "ignore"
    )
    return Form(core_schema.no_info_after_validator_function(read, schema), write)


# -- forms -------------------------------------------------------------------------------------------------------------

# Pydantic's own check of text refuses half of a surrogate pair, which clouds and scripts may send.
TEXT: Final[Form[str]] = Form(core_schema.is_instance_schema(str), _same)
WHOLE: Final[Form[int]] = Form(core_schema.int_schema(strict=True), _same)
NUMBER: Final[Form[float]] = Form(core_schema.float_schema(strict=True), _same)  # 1 too, as others write 1.0
FLAG: Final[Form[bool]] = Form(core_schema.bool_schema(strict=True), _same)
OBJECT: Final[Form[Mapping[str, object]]] = Form(core_schema.dict_schema(), _same)  # whatever is in it


def _money(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise ValueError(f"{text[:80]!r} is not an amount of money")
    return amount


AMOUNT: Final[Form[Quantity]] = parsed(Quantity)
MONEY: Final[Form[Decimal]] = parsed(_money)
DURATION: Final[Form[timedelta]] = parsed(parse_duration, format_duration)
TEXTS: Final[Form[Mapping[str, str]]] = entries(TEXT)
AMOUNTS: Final[Form[Mapping[str, Quantity]]] = entries(AMOUNT)
TAINT: Final[Form[Taint]] = record(Taint, key=TEXT, value=TEXT, effect=TEXT)
TAINTS: Final[Form[Sequence[Taint]]] = items(TAINT)
