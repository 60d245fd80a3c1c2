"""What is computed in a transaction: conditions and values over what was read before, and the members of an object.

Text in the predicate notation is compiled for the names that it uses and their types, once; what is used often becomes
machine code. A name that was read hides a member of the same name.

What was compiled is kept (`Texts`), and so is what is wrong with a text, up to a number and a length of all together;
those of other nodes apart from the owner's, which they cannot push out. To compile one takes from half a millisecond to
some ten: whoever has a thread to spare does it before the turn (`Checker`), where it is found then.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.msgpack import Encoder

from headwater.errors import HeadwaterError, ObjectError
from headwater.interest import Interest, parse
from headwater.ir.build import Builder
from headwater.ir.cost import MAX_RECORD
from headwater.ir.nodes import Const, Expr, Return, Span, Stmt
from headwater.types import EventType, event_type
from headwater.types.model import BOOL, I64, Field, Record, Type

MAX_TEXT = 4096  # characters of one
COMPILED = 1024  # that are kept,
LENGTH = 256 << 10  # and characters of them: each takes hundreds of times its length in memory
EACH = 128  # characters that one counts for besides its own
INTERPRETED = 1000  # nanoseconds of a step of the interpreter
NATIVE_AFTER = 64  # uses, from which on machine code is made
_WORD = re.compile(r"[^\W\d]\w*")
_PARAM = re.compile(r":([^\W\d]\w*)")
_FIELD = "value"
_SCALARS = (bool, int, float, str, bytes)
_packed = Encoder().encode
_NOTHING = Field("nothing_is_read", I64, True)  # an event type has at least one field


class Named(NamedTuple):
    """Something that an expression may use: its type, whether it may be missing, and its raw form."""

    type: Type
    optional: bool
    raw: Any


class _Result(Builder):
    """An expression whose result becomes the one field of an output."""

    to: Record

    def __init__(self, input: Record, **options: Any) -> None:
        super().__init__(input, output=self.to, **options)

    def return_(self, value: Expr, span: Span) -> list[Stmt]:
        return [*self.set_out([_FIELD], value, span), Return(Const(True, BOOL, span), span)]


class Compiled(NamedTuple):
    """An expression, ready to be used on a record of what it reads."""

    scope: EventType
    run: Callable[[bytes], Any]
    interest: Interest

    def steps(self, size: int) -> int:
        """What one use costs, in nanoseconds or so, where it is interpreted and all text in it is of `size` bytes: by
        what the checker has counted."""
        cost = self.interest.cost
        return INTERPRETED * cost.estimated + (cost.worst - cost.estimated) * min(size, MAX_RECORD) // MAX_RECORD


class Texts:
    """What was compiled, and what was wrong with the rest, the latest used last; threads may share it."""

    def __init__(self, count: int = COMPILED, length: int = LENGTH) -> None:
        self._count, self._most = count, length
        self._kept: OrderedDict[tuple[Any, ...], Compiled | str] = OrderedDict()
        self._length = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def condition(self, text: str, names: Mapping[str, Named], params: Mapping[str, Any]) -> bool:
        """Whether it holds; not where it is undecided, since something is missing. ObjectError if it is none."""
        made = self.compiled(text, names, None, params)
        return bool(made.run(record_of(made.scope, names)))

    def compiled(
        self, text: str, names: Mapping[str, Named], target: Type | None, params: Mapping[str, Any]
    ) -> Compiled:
        """A condition or, with a target, a value of that type; ObjectError with all that is wrong with it."""
        if len(text) > MAX_TEXT:
            raise ObjectError(f"expected at most {MAX_TEXT:,} characters, found {len(text):,}")
        used = {name: params[name] for name in _PARAM.findall(text) if name in params} if params else {}
        scope = _scope(dict.fromkeys(_WORD.findall(text)), names)
        # True, 1 and 1.0 are equal, and compiled otherwise.
        key = (text, scope, target, *((name, each.__class__, _hashed(each)) for name, each in sorted(used.items())))
        found = self._kept.get(key)
        if found is None:
            found = _made(text, scope, names, target, used)
            self._keep(key, found)
        else:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
        if isinstance(found, str):
            raise ObjectError(found)
        return found

    def _keep(self, key: tuple[Any, ...], made: Compiled | str) -> None:
        with self._lock:
            if key not in self._kept:
                self._length += _length(key)
            self._kept[key] = made
            while len(self._kept) > self._count or self._length > self._most:
                oldest, _ = self._kept.popitem(last=False)
                self._length -= _length(oldest)


OWN = Texts()  # of the owner's own transactions, and of its triggers
OTHERS = Texts()  # of those that other nodes have sent


def texts_of(foreign: bool) -> Texts:
    """Those that are kept of the owner's own transactions, or of other nodes'."""
    return OTHERS if foreign else OWN


def _hashed(value: Any) -> Any:
    """A parameter's value, as it can be looked up: of sets and maps, also which kinds of numbers are in it."""
    if value.__class__ in _SCALARS:
        return value
    try:
        return _packed(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def _length(key: tuple[Any, ...]) -> int:
    """Characters of a text, and of its parameters."""
    params = sum(len(value) for _, _, value in key[3:] if isinstance(value, (str, bytes)))
    return len(key[0]) + EACH + params


def _made(
    text: str, scope: Record, names: Mapping[str, Named], target: Type | None, params: Mapping[str, Any]
) -> Compiled | str:
    try:
        return _compile(text, scope, target, params)
    except (HeadwaterError, RecursionError):
        pass  # with all names at hand it can be said better what is wrong
    try:
        return _compile(text, _scope(names, names), target, params)
    except (HeadwaterError, RecursionError) as error:
        said = " ".join(str(error).split()).replace("Scope has no field", "nothing was read as")
        return said.replace(f"hint: its fields are: {_NOTHING.name}", "read it first")


def _scope(used: Iterable[str], names: Mapping[str, Named]) -> Record:
    """The record of what is used."""
    fields = tuple(Field(name, names[name].type, names[name].optional) for name in used if name in names)
    return Record("Scope", fields or (_NOTHING,))


def _compile(text: str, scope: Record, target: Type | None, params: Mapping[str, Any]) -> Compiled:
    """Over a record of what it reads: a condition, or the one field of an output; InterestError if it is neither."""
    type = event_type(scope)
    if target is None:
        test = Interest(text, type, params=params, notation="predicate")
        return Compiled(type, test.native(after=NATIVE_AFTER).test, test)
    output = Record("Value", (Field(_FIELD, target, True),))
    builder: Any = type_of_builder(output)
    program, values = parse(text, scope, params=params, notation="predicate", builder=builder)
    interest = Interest.from_program(program, values)
    native = interest.native(after=NATIVE_AFTER)
    to = event_type(output)

    def run(record: bytes) -> Any:
        found = native.run(record)
        if found.output is None:
            raise ObjectError(
                f"{text!r}: expected a value, found that it cannot be computed ({found.status.name.lower()})"
            )
        return to.decode_raw(bytes(found.output))[_FIELD]

    return Compiled(type, run, interest)


@lru_cache(256)
def type_of_builder(output: Record) -> type[_Result]:
    """A builder of programs with this output."""
    return type("_Result", (_Result,), {"to": output})


def record_of(scope: EventType, names: Mapping[str, Named]) -> bytes:
    """What an expression reads, as it takes it."""
    fields = scope.record.fields
    if fields[0] is _NOTHING:
        return scope.encode({_NOTHING.name: None})
    return scope.encode({field.name: names[field.name].raw for field in fields})


__all__ = ["MAX_TEXT", "OTHERS", "OWN", "Compiled", "Named", "Texts", "record_of", "texts_of"]
