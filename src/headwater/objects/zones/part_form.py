"""What one owner is to measure for a trigger of another node, as it is sent and kept; and checked, as it is run.

It holds no more than a checked, bounded program can: the objects that are meant with their types, conjuncts that are
decided there, and paths of values. Nothing of it is trusted before `measure_of` has looked at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from headwater.decoders import msgpack_decoder
from headwater.errors import HeadwaterError, ObjectError
from headwater.interest import Interest
from headwater.ir.package import Package
from headwater.objects.names import object_name
from headwater.objects.object_types import member_of, packed, unpacked
from headwater.objects.zones.ranges import Value
from headwater.objects.zones.split import Part, leaf_type
from headwater.types import event_type
from headwater.types.model import Record, Type

if TYPE_CHECKING:
    from headwater.objects.reactions import Moment
    from headwater.types import EventType

MAX_FORM = 64 << 10  # bytes
MOST_VALUES = 64  # that one owner measures for one trigger
LONGEST_TEXT = 16 << 10  # characters of a value that is told; a longer one counts as missing

Short = Annotated[str, Meta(min_length=1, max_length=255)]
Path = Annotated[str, Meta(max_length=600)]


class InputForm(msgspec.Struct, frozen=True, array_like=True):
    """An object of the owner's, or a member of it, and the type that it must be of to be seen."""

    object: Path
    member: Path
    type: Short


class PartForm(msgspec.Struct, frozen=True, array_like=True):
    """`record` is the type of the inputs, packed, and `local` are conjuncts over it, each with its parameters; of
    `leaves` and `whole` values are told. `events`: the objects whose events count, where it fires at `each`."""

    inputs: Annotated[dict[Short, InputForm], Meta(min_length=1, max_length=MOST_VALUES)]
    record: Annotated[bytes, Meta(max_length=MAX_FORM)]
    local: Annotated[tuple[Annotated[bytes, Meta(max_length=MAX_FORM)], ...], Meta(max_length=MOST_VALUES)]
    leaves: Annotated[tuple[tuple[Short, ...], ...], Meta(max_length=MOST_VALUES)]
    whole: Annotated[tuple[Short, ...], Meta(max_length=MOST_VALUES)]
    each: bool = False
    events: Annotated[tuple[Path, ...], Meta(max_length=MOST_VALUES)] = ()


_DECODER = msgpack_decoder(PartForm)


def form_of(part: Part, inputs: Mapping[str, tuple[str, str]], *, each: bool, events: tuple[str, ...]) -> bytes:
    """The form of a part, its `inputs` being whole names of objects or members, and their types by name."""
    found = {}
    for name in part.record.by_name:
        place = object_name(inputs[name][0])
        found[name] = InputForm(place.object, place.member, inputs[name][1])
    local = tuple(Package.of(one.program, one.params, one.limits.fuel).dumps() for one in part.local)
    form = PartForm(
        found, packed(event_type(part.record)), local, part.leaves, tuple(part.whole), each=each, events=events
    )
    data = msgspec.msgpack.encode(form)
    if len(data) > MAX_FORM or len(part.names) > MOST_VALUES:
        raise ObjectError(
            f"owner {part.owner!r}: expected a part of at most {MAX_FORM:,} bytes and {MOST_VALUES} values, found "
            f"{len(data):,} bytes and {len(part.names)} values; make several triggers of it"
        )
    return data


class Measure:
    """What an owner measures, ready to run."""

    def __init__(self, form: PartForm, part: Part, types: Mapping[str, EventType]) -> None:
        self.form, self.part, self._types = form, part, types
        self.objects = frozenset(each.object for each in form.inputs.values())

    def counts(self, object: str) -> bool:
        """Whether an event of this object is one of the trigger's."""
        return object in self.form.events

    def values(self, moment: Moment) -> tuple[Value, ...]:
        """As they are now. An object that is not there, or is of another type by now, is missing."""
        raw = {name: self._input(name, each, moment) for name, each in self.form.inputs.items()}
        try:
            found = self.part.measure(raw)
        except (HeadwaterError, ArithmeticError, ValueError, LookupError, TypeError):  # it fails at the event: not true
            return (None,) * len(self.part.names)
        return tuple(None if isinstance(each, str) and len(each) > LONGEST_TEXT else each for each in found)

    def _input(self, name: str, given: InputForm, moment: Moment) -> Any:
        found = moment.value(given.object)
        if found is None or found[0] != self._types[name]:
            return None
        return member_of(found[2], given.member) if given.member else found[2]


def unpack_form(data: bytes) -> PartForm:
    """From bytes that may come from anyone."""
    if len(data) > MAX_FORM:
        raise ObjectError(f"part of a trigger: expected at most {MAX_FORM:,} bytes, found {len(data):,}")
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ObjectError(f"part of a trigger: expected its packed form, found other bytes: {error}") from None


def measure_of(data: bytes, type_named: Callable[[str], EventType | None]) -> Measure:
    """A part as it was sent, checked against the types of the objects here; ObjectError with all that is wrong."""
    form = unpack_form(data)
    try:
        record = unpacked(form.record).record
        local = [_conjunct(each, record) for each in form.local]
    except (HeadwaterError, msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise ObjectError(f"part of a trigger: expected programs that can be run here, found: {error}") from None
    wrong, types = list[str](), dict[str, Any]()
    if record.by_name.keys() != form.inputs.keys():
        wrong.append("expected a type of its inputs, found one of others")
    for name, given in form.inputs.items():
        types[name] = type = type_named(given.type)
        stored: Type | None = None if type is None else member_type(type.record, given.member)
        here = record.by_name.get(name)
        if type is None:
            wrong.append(f"{name}: expected a type of objects here, found {given.type!r}")
        elif here is not None and here.type != stored:
            wrong.append(f"{name}: expected it as type {given.type!r} is here, found it otherwise")
    wrong += [f"expected the path of a value, found {'.'.join(leaf)}" for leaf in form.leaves
              if leaf_type(record, leaf) is None]  # fmt: skip
    wrong += [f"expected an input, found {name}" for name in form.whole if name not in record.by_name]
    if len(form.local) + len(form.leaves) + len(form.whole) > MOST_VALUES:
        wrong.append(f"expected at most {MOST_VALUES} values, found more")
    if wrong:
        raise ObjectError("\n".join(["part of a trigger:", *(f"  - {each}" for each in wrong)]))
    return Measure(form, Part("", record, local, form.leaves, form.whole), types)


def _conjunct(data: bytes, record: Record) -> Interest:
    """A conjunct that someone sent: a filter over these inputs that keeps nothing, and is quick."""
    package = Package.loads(data)
    program, params = package.open()
    made = Interest.from_program(program, params)
    if program.input != record or made.output is not None or made.stateful or not made.needs_only_a_moment:
        raise ObjectError("expected a quick condition over its inputs, found something else")
    return made


def member_type(record: Record, path: str) -> Type | None:
    """The type of a member; None if there is none. No path: the record itself."""
    here: Type = record
    for step in path.split(".") if path else ():
        found = here.by_name.get(step) if isinstance(here, Record) else None
        if found is None:
            return None
        here = found.type
    return here


__all__ = ["MAX_FORM", "MOST_VALUES", "Measure", "PartForm", "form_of", "measure_of", "member_type", "unpack_form"]
