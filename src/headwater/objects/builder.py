"""Transactions as programs write them: operations one after the other, submitted at the end of a `with` block.

    with objects.transaction() as t:
        car = t.create("car", "Vehicle", position={"x": 0.0, "y": 0.0}, speed=1.0)
        x = t.read("car.position.x")
        t.only_if(x < 10)
        t.update(car, {"position.x": x + 1}, event=True)
    t.results["x"]

What is read stands for a value that is not known yet: it can be computed with, compared, and given to later operations.
`Computed("position.x + 1")` is the same as text, in which the members of the object itself may be used too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from headwater.errors import ObjectError
from headwater.objects.names import object_name
from headwater.objects.operations import (
    Administer,
    AnyOperation,
    Create,
    Destroy,
    Guard,
    Invoke,
    Outcome,
    Put,
    Raise,
    Read,
    Transaction,
    Update,
    plain,
)


class Computed:
    """A value that the owner computes: text in the predicate notation. Arithmetic and comparisons give another one."""

    __slots__ = ("text",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ObjectError(f"Computed: expected text such as 'x + 1', found {text!r}")
        self.text = text

    def __repr__(self) -> str:
        return f"Computed({self.text!r})"

    def __bool__(self) -> bool:
        raise ObjectError(
            f"{self.text}: expected a value that is known, found one that the owner computes later; "
            "give it to t.only_if(...), and use &, | and ~ in the place of and, or and not"
        )

    def _with(self, sign: str, other: object, *, turned: bool = False) -> Computed:
        left, right = (_text(other), self.text) if turned else (self.text, _text(other))
        return Computed(f"({left} {sign} {right})")

    def __add__(self, other: object) -> Computed:
        return self._with("+", other)

    def __radd__(self, other: object) -> Computed:
        return self._with("+", other, turned=True)

    def __sub__(self, other: object) -> Computed:
        return self._with("-", other)

    def __rsub__(self, other: object) -> Computed:
        return self._with("-", other, turned=True)

    def __mul__(self, other: object) -> Computed:
        return self._with("*", other)

    def __rmul__(self, other: object) -> Computed:
        return self._with("*", other, turned=True)

    def __truediv__(self, other: object) -> Computed:
        return self._with("/", other)

    def __rtruediv__(self, other: object) -> Computed:
        return self._with("/", other, turned=True)

    def __mod__(self, other: object) -> Computed:
        return self._with("%", other)

    def __neg__(self) -> Computed:
        return Computed(f"(-{self.text})")

    def __abs__(self) -> Computed:
        return Computed(f"abs({self.text})")

    def __lt__(self, other: object) -> Computed:
        return self._with("<", other)

    def __le__(self, other: object) -> Computed:
        return self._with("<=", other)

    def __gt__(self, other: object) -> Computed:
        return self._with(">", other)

    def __ge__(self, other: object) -> Computed:
        return self._with(">=", other)

    def __eq__(self, other: object) -> Computed:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: object) -> Computed:  # type: ignore[override]
        return self._with("!=", other)

    def __and__(self, other: object) -> Computed:
        return self._with("and", other)

    def __or__(self, other: object) -> Computed:
        return self._with("or", other)

    def __invert__(self) -> Computed:
        return Computed(f"(not {self.text})")

    def __getattr__(self, field: str) -> Computed:
        if field.startswith("__"):
            raise AttributeError(field)
        return Computed(f"{self.text}.{field}")


def _text(value: object) -> str:
    """A value in an expression."""
    if isinstance(value, Computed):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"({value!r})" if value < 0 else repr(value)
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    raise ObjectError(f"expected a number, text or what was read, found {value.__class__.__name__}; use a parameter")


class TransactionBuilder:
    """Operations in the order in which they are to be done; `build` makes the transaction of them."""

    def __init__(self, node: str, *, ticket: bytes = b"", params: Mapping[str, Any] | None = None) -> None:
        self._node, self._ticket = node, ticket
        self._params = {} if params is None else {name: plain(value) for name, value in params.items()}
        self._operations: list[AnyOperation] = []

    # ── operations ──

    def create(self, name: str, type: str, value: Any = None, /, **members: Any) -> str:
        """A new object of a declared type: its value as an event or dict, or its members as keywords. Its full name."""
        given, computed = members_of(value, members)
        full = self._name(name)
        self._operations.append(Create(full, type, given, computed))
        return full

    def update(self, name: str, value: Any = None, /, *, event: bool = False, **members: Any) -> None:
        """Give members (paths such as `position.x` in a dict, or keywords) values; silently, or with an event."""
        given, computed = members_of(value, members)
        self._operations.append(Update(self._name(name), given, computed, event))

    def put(self, name: str, type: str, value: Any = None, /, *, event: bool = False, **members: Any) -> None:
        """Give members values, of an object that is made of them where there is none: that is an event always."""
        given, computed = members_of(value, members)
        self._operations.append(Put(self._name(name), type, given, computed, event))

    def read(self, name: str, as_: str | None = None) -> Computed:
        """The value of an object or member: for later operations, and in the results under this name, which is that of
        the member, or of the object, if none is given."""
        full = object_name(name, self._node)
        alias = as_ or (full.member or full.object).replace("/", ".").rpartition(".")[2].replace("-", "_")
        self._operations.append(Read(str(full), alias))
        return Computed(alias)

    def invoke(self, name: str, method: str, as_: str = "", /, **arguments: Any) -> Computed | None:
        """A registered method of an object; its result, under this name, if one is given."""
        given, computed = members_of(None, arguments)
        self._operations.append(Invoke(self._name(name), method, given, computed, as_))
        return Computed(as_) if as_ else None

    def raise_event(self, name: str) -> None:
        """An event about an object or a member, which is not changed."""
        self._operations.append(Raise(self._name(name)))

    def publish(self, channel: str, value: Any = None, /, **fields: Any) -> None:
        """An event of a channel of the owner, after the commit."""
        given, computed = members_of(value, fields)
        self._operations.append(Raise("", channel, given, computed))

    def destroy(self, name: str) -> None:
        """An object is no more."""
        self._operations.append(Destroy(self._name(name)))

    def only_if(self, condition: Computed | str) -> None:
        """Go on only if this holds of what was read; else nothing of the transaction is done."""
        self._operations.append(Guard(condition.text if isinstance(condition, Computed) else condition))

    def administer(self, what: str, name: str, body: bytes = b"", as_: str = "") -> None:
        """An operation of triggers, in the same queue."""
        self._operations.append(Administer(what, name, body, as_))

    def _name(self, name: str) -> str:
        return str(object_name(name, self._node))

    # ── what is made of them ──

    def build(self) -> Transaction:
        """The transaction, to be submitted here, at its owner, or as a trigger's action."""
        return Transaction(tuple(self._operations), self._ticket, self._params)

    def __len__(self) -> int:
        return len(self._operations)


def members_of(value: Any, members: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is given, and what is computed, by path."""
    given: dict[str, Any] = {}
    computed: dict[str, str] = {}
    if value is not None and value.__class__ is not dict and not isinstance(value, Mapping):
        value = plain(value)
        if not isinstance(value, dict):
            raise ObjectError(f"expected an event, a dict by member, or members as keywords, found {value!r}")
    for name, each in (*(value or {}).items(), *members.items()):
        if isinstance(each, Computed):
            computed[str(name)] = each.text
        else:
            given[str(name)] = plain(each)
    return given, computed


class Submitted(TransactionBuilder):
    """A builder whose block submits it: nothing is done if the block raises. `outcome` and `results` are there then."""

    def __init__(
        self,
        node: str,
        submit: Callable[[Transaction], Outcome],
        submit_async: Callable[[Transaction], Any],
        *,
        ticket: bytes = b"",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(node, ticket=ticket, params=params)
        self._submit, self._submit_async = submit, submit_async
        self._outcome: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """What has become of it, once the block is over."""
        if self._outcome is None:
            raise ObjectError("transaction: expected that its block is over, found that it was not submitted yet")
        return self._outcome

    @property
    def results(self) -> dict[str, Any]:
        """What was read and returned, by name."""
        return self.outcome.results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._outcome = self._submit(self.build())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._outcome = await self._submit_async(self.build())


__all__ = ["Computed", "Submitted", "TransactionBuilder"]
