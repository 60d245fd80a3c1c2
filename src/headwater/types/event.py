"""Declaring event types as Python classes.

    class Sighting(Event, name="ie.tcd.Sighting"):
        badge: u32
        network: str
        level: f32
        seen: datetime
        position: Position | None = None

Instances are immutable and cheap. A field may be `bool`, `int` (64 bits, signed), `float` (64 bits), `str`, `bytes`,
`datetime`; one of the aliases `i8` … `i64`, `u8` … `u64`, `f32`, `f64`, `text`, `timestamp`, which type checkers see
as `int`, `float`, `str` and `datetime`; an `enum.Enum`; another Event; `list[X]` or `tuple[X, ...]`; a fixed array
`Array[X, 37, 253]`; and each of these `| None`.

The event type's name is the class's own (not its module's), or the class keyword `name`.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, Literal, Self, Union, get_args, get_origin

import msgspec

from headwater.errors import TypeDeclarationError
from headwater.types import model
from headwater.types.binding import Binding, class_name
from headwater.types.layout import Layout

__all__ = [
    "Array",
    "Event",
    "EventMeta",
    "Shape",
    "binding_of",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "make_class",
    "text",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]

i8 = Annotated[int, model.I8]
i16 = Annotated[int, model.I16]
i32 = Annotated[int, model.I32]
i64 = Annotated[int, model.I64]
u8 = Annotated[int, model.U8]
u16 = Annotated[int, model.U16]
u32 = Annotated[int, model.U32]
u64 = Annotated[int, model.U64]
f32 = Annotated[float, model.F32]
f64 = Annotated[float, model.F64]
text = Annotated[str, model.TEXT]
timestamp = Annotated[datetime, model.TIMESTAMP]

POSSIBLE = (
    "possible are bool, int, float, str, bytes, datetime, i8 to i64, u8 to u64, f32, f64, text, timestamp, "
    "an enum.Enum, an Event class, list[X], tuple[X, ...], Array[X, n, ...], and X | None"
)

_BUILTIN: dict[Any, model.Scalar] = {
    bool: model.BOOL,
    int: model.I64,
    float: model.F64,
    str: model.TEXT,
    bytes: model.BYTES,
    datetime: model.TIMESTAMP,
}


class Shape:
    """The dimensions of a fixed array, outermost first, as annotation metadata: `Annotated[f64, Shape(37, 253)]`."""

    def __init__(self, *dimensions: int) -> None:
        self.dimensions = dimensions

    def __repr__(self) -> str:
        return f"Shape{self.dimensions}"


if TYPE_CHECKING:
    from typing import Annotated as Array

    from headwater.types.event_type import EventType
else:

    class Array:
        """A fixed array: `Array[f64, 37, 253]` has 37 rows of 253 numbers.

        Type checkers see the first argument, as with `Annotated`; so where they matter write what the field
        holds in Python: `Array[Sequence[Sequence[f64]], 37, 253]`, one `Sequence` for each dimension. It is
        the same type. Nested sequences, numpy arrays and other buffers may be given; decoding gives tuples.
        """

        def __class_getitem__(cls, arguments: Any) -> Any:
            if not isinstance(arguments, tuple) or len(arguments) < 2:
                raise TypeDeclarationError("Array: expected an element type and one or more dimensions")
            element, *dimensions = arguments
            return Annotated[element, Shape(*(_dimension(n) for n in dimensions))]


def _dimension(value: Any) -> int:
    if get_origin(value) is Literal:
        (value,) = get_args(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeDeclarationError(f"Array: expected dimensions of 1 or more, found {value!r}")
    return value


class _Unresolved(Exception):
    """An annotation names something that is not defined (yet)."""


def _captured(annotations: dict[str, Any], frame: types.FrameType | None) -> dict[str, Any]:
    """The local names that textual annotations use, for classes declared inside functions or classes."""
    words = {
        word
        for annotation in annotations.values()
        for word in re.findall(r"[^\W\d]\w*", annotation if isinstance(annotation, str) else "")
    }
    scope: dict[str, Any] = {}
    while frame is not None and frame.f_locals is not frame.f_globals:
        for word in words.intersection(frame.f_locals):
            scope.setdefault(word, frame.f_locals[word])
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            break  # a function: what called it is not an enclosing scope
        frame = frame.f_back
    return scope


class EventMeta(msgspec.StructMeta):
    """Makes Event classes frozen, and checks their annotations as soon as they can be resolved."""

    def __new__(
        mcls,
        cls_name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        *,
        name: str | None = None,
        **options: Any,
    ) -> EventMeta:
        """Make the class of an event type: a frozen msgspec struct. Options that would change what is on the wire are
        refused."""
        if not options.get("frozen", True):
            raise TypeDeclarationError(f"{cls_name}: events are immutable; remove frozen=False")
        if name is not None and not name:
            raise TypeDeclarationError(f"{cls_name}: expected a name, found an empty one")
        for option in ("rename", "tag", "tag_field", "array_like"):
            if options.get(option):
                raise TypeDeclarationError(f"{cls_name}: {option}= has no meaning for an event type; remove it")
        options["frozen"] = True
        namespace["__event_name__"] = name or cls_name
        annotations = namespace.get("__annotations__", {})
        namespace["__event_scope__"] = _captured(annotations, sys._getframe(1))
        cls = super().__new__(mcls, cls_name, bases, namespace, **options)
        if cls.__struct_fields__ and "__event_made__" not in namespace:
            with suppress(_Unresolved):  # a name defined further down is resolved at first use
                _bind_class(cls, ())
        return cls


if TYPE_CHECKING:
    from typing import dataclass_transform

    @dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
    class Event(metaclass=EventMeta):
        """The base of all event classes (see the module's documentation)."""

        __event_name__: str
        __struct_fields__: tuple[str, ...]
        __match_args__: tuple[str, ...]

        def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None: ...

        @classmethod
        def __event_binding__(cls) -> Binding: ...

        def to_dict(self) -> dict[str, Any]: ...

        @classmethod
        def from_dict(cls, fields: Mapping[str, Any]) -> Self: ...

        def to_json(self, *, indent: int | None = None) -> str: ...

        @classmethod
        def from_json(cls, text: str | bytes | bytearray) -> Self: ...
else:

    class Event(msgspec.Struct, metaclass=EventMeta):
        """The base of all event classes (see the module's documentation)."""

        @classmethod
        def __event_binding__(cls) -> Binding:
            return binding_of(cls)

        def to_dict(self):
            """The fields by name, as Python values; nested events are dicts, too."""
            return _type_of(self).to_dict(self)

        @classmethod
        def from_dict(cls, fields):
            """The event that a dict describes; `EncodeError`, which names the field, if it describes none."""
            return _type_of(cls).from_dict(fields)

        def to_json(self, *, indent=None):
            """The event as JSON text: times as ISO 8601, bytes as base64, members of enumerations by name."""
            return _type_of(self).to_json(self, indent=indent)

        @classmethod
        def from_json(cls, text):
            """The event in JSON text; `EncodeError`, which names the field, if there is none."""
            return _type_of(cls).from_json(text)


def _type_of(what: Any) -> EventType:
    from headwater.types.event_type import event_type

    return event_type(what)


def binding_of(cls: type[Event]) -> Binding:
    """The binding of an Event class; raises `TypeDeclarationError` if a name in it cannot be resolved."""
    try:
        return _bind_class(cls, ())
    except _Unresolved as error:
        raise TypeDeclarationError(
            f"{error}; declare it before {cls.__name__}, at the top of its module or in the same function"
        ) from None


def make_class(record: model.Record, attrs: tuple[str, ...], parts: tuple[Binding, ...]) -> type[Event]:
    """An Event class for a record that no Python class declares."""
    annotations = dict.fromkeys(attrs, Any)
    namespace: dict[str, Any] = {
        "__annotations__": annotations,
        "__module__": __name__,
        "__doc__": f"Events of the type {record.name}.",
        "__event_made__": True,
    }
    for field, attr in reversed(list(zip(record.fields, attrs, strict=True))):
        if not field.optional:
            break
        namespace[attr] = None  # a default, possible only where no required field follows
    made: Any = EventMeta(class_name(record.name), (Event,), namespace, name=record.name)
    made.__event_bound__ = Binding(record, made, attrs, parts)
    return made  # type: ignore[no-any-return]


def _bind_class(cls: Any, within: tuple[Any, ...]) -> Binding:
    """How instances of an event class are encoded; all that is wrong with its fields is said at once."""
    if "__event_bound__" in cls.__dict__:
        return cls.__event_bound__  # type: ignore[no-any-return]
    if cls in within:
        chain = " → ".join(c.__name__ for c in (*within[within.index(cls) :], cls))
        raise TypeDeclarationError(f"{cls.__name__}: an event type cannot contain itself ({chain})")
    if not cls.__struct_fields__:
        raise TypeDeclarationError(f"{cls.__name__}: expected at least one field, found none")
    found: dict[str, tuple[Binding, bool]] = {}
    problems: list[str] = []
    for owner in reversed(cls.__mro__):
        if not isinstance(owner, EventMeta):
            continue
        for name, annotation in inspect.get_annotations(owner).items():
            if name not in cls.__struct_fields__:
                continue
            try:
                resolver = _Resolver(cls, owner, name, (*within, cls))
                found[name] = resolver.field(annotation)
            except TypeDeclarationError as error:
                problems.append(str(error))
    if problems:
        raise TypeDeclarationError("\n".join(problems))
    attrs = tuple(cls.__struct_fields__)
    fields = tuple(model.Field(name, found[name][0].type, found[name][1]) for name in attrs)
    record = model.Record(cls.__event_name__, fields)
    Layout.of(record)  # refuses what is too large or too deep
    cls.__event_bound__ = Binding(record, cls, attrs, tuple(found[name][0] for name in attrs))
    return cls.__event_bound__  # type: ignore[no-any-return]


class _Resolver:
    """Turns one field's annotation into a binding."""

    def __init__(self, cls: Any, owner: Any, name: str, within: tuple[Any, ...]) -> None:
        self.cls, self.owner, self.name, self.within = cls, owner, name, within

    def evaluate(self, annotation: Any) -> Any:
        if isinstance(annotation, ForwardRef):
            annotation = annotation.__forward_arg__
        if not isinstance(annotation, str):
            return annotation
        module = sys.modules.get(self.owner.__module__)
        try:
            # The text is the program's own source, as typing.get_type_hints would evaluate it.
            return eval(annotation, dict(vars(module)) if module else {}, self.owner.__event_scope__)
        except NameError as error:
            raise _Unresolved(f"{self.place}: the annotation {annotation!r} cannot be resolved: {error}") from None
        except TypeDeclarationError:
            raise
        except Exception as error:
            raise TypeDeclarationError(f"{self.place}: the annotation {annotation!r} is faulty: {error}") from error

    @property
    def place(self) -> str:
        return f"{self.cls.__name__}.{self.name}"

    def unsupported(self, annotation: Any, why: str = "") -> TypeDeclarationError:
        shown = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
        return TypeDeclarationError(f"{self.place}: found {shown}{why and ', ' + why}; {POSSIBLE}")

    def field(self, annotation: Any) -> tuple[Binding, bool]:
        """The binding of a field, and whether it is optional."""
        annotation = self.evaluate(annotation)
        if get_origin(annotation) in (Union, types.UnionType):
            choices = [a for a in get_args(annotation) if a is not types.NoneType]
            if len(choices) != 1:
                raise self.unsupported(annotation, "a choice of types")
            return self.bind(choices[0]), True
        return self.bind(annotation), False

    def bind(self, annotation: Any) -> Binding:
        """The type that an annotation stands for."""
        annotation = self.evaluate(annotation)
        if get_origin(annotation) is Annotated:
            return self.annotated(*get_args(annotation))
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin in (Union, types.UnionType):
            if types.NoneType in arguments:
                raise self.unsupported(annotation, "but elements are never missing")
            raise self.unsupported(annotation, "a choice of types")
        if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
            element = self.bind(arguments[0])
            return Binding(model.List(element.type), origin, parts=(element,))
        if annotation in (list, tuple) or origin is tuple:
            raise self.unsupported(annotation, "without one element type: write list[X] or tuple[X, ...]")
        if not isinstance(annotation, type):
            raise self.unsupported(annotation)
        if annotation in _BUILTIN:
            return Binding(_BUILTIN[annotation])
        if issubclass(annotation, enum.Enum):
            return self.enumeration(annotation)
        if isinstance(annotation, EventMeta):
            return _bind_class(annotation, self.within)
        raise self.unsupported(annotation)

    def annotated(self, base: Any, *metadata: Any) -> Binding:
        # Annotated within Annotated is one list of metadata, innermost first.
        shapes = [tag.dimensions for tag in metadata if isinstance(tag, Shape)]
        shape = tuple(n for dimensions in reversed(shapes) for n in dimensions)
        scalar = next((tag for tag in metadata if isinstance(tag, model.Scalar)), None)
        if not shape:
            return Binding(scalar) if scalar is not None else self.bind(base)
        if get_origin(base) is Sequence:
            for _ in shape:
                if get_origin(base) is not Sequence:
                    raise self.unsupported(base, f"expected one Sequence for each of {len(shape)} dimensions")
                (base,) = get_args(base)
        element = Binding(scalar) if scalar is not None else self.bind(base)
        if isinstance(element.type, model.Array):
            shape, element = (*shape, *element.type.shape), element.parts[0]
        return Binding(model.Array(element.type, shape), parts=(element,))

    def enumeration(self, cls: type[enum.Enum]) -> Binding:
        if issubclass(cls, enum.Flag):
            raise self.unsupported(cls, "a Flag, whose members combine: use an integer")
        members = tuple(cls)
        values = [member.value for member in members]
        coded = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        codes = values if coded else range(len(members))
        names = [member.name for member in members]
        type = model.Enum(cls.__name__, tuple((n, int(c)) for n, c in zip(names, codes, strict=True)))
        return Binding(type, cls, members=members)
