"""A trigger as a library has it: as it was written, with names of objects that are of whichever node installs it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgspec

from headwater.decoders import msgpack_decoder
from headwater.errors import LibraryError
from headwater.objects.builder import TransactionBuilder
from headwater.objects.operations import Administer, AnyOperation, Transaction
from headwater.objects.reactions import Coupling, OnFailure
from headwater.objects.triggers import definition
from headwater.objects.triggers.definition import Input, Trigger, When
from headwater.objects.triggers.history import History

KIND = "trigger"
_OWNER = "library"  # whose objects they are while a trigger is only checked for its form


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What `objects.trigger` takes, but for the name."""

    on: tuple[str, ...]
    when: When
    where: str = ""
    type: str = ""
    inputs: dict[str, Input] = {}
    history: dict[str, History] = {}
    do: tuple[AnyOperation, ...] = ()
    notify: dict[str, str] | None = None
    veto: str = ""
    priority: int = 0
    group: str = ""
    coupling: Coupling = "after"
    on_failure: OnFailure = "report"
    params: dict[str, Any] = {}


_decode = msgpack_decoder(_Written).decode
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class TriggerForm:
    """A trigger to be published: `TriggerForm(on="stock/acme", when="becomes", where="new.price < :limit", ...)`, with
    what `objects.trigger` takes. Its form is checked here; objects and types are, where it is installed."""

    kind = KIND

    def __init__(
        self,
        *,
        on: str | tuple[str, ...] | list[str],
        when: When,
        inputs: Mapping[str, str | tuple[str, str] | Input] | None = None,
        do: Any = (),
        notify: Any = False,
        params: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        if callable(do):
            raise LibraryError("trigger: do: expected operations, such as Update(...), found a function")
        if isinstance(do, TransactionBuilder):
            do = do.build()
        operations = do.operations if isinstance(do, Transaction) else tuple(do)
        given = {name: _input(each) for name, each in (inputs or {}).items()}
        checked = definition.trigger(
            "library", on=on, when=when, inputs=given, do=operations, notify=notify, params=params, node=_OWNER, **more
        )
        self._take(
            _Written(
                (on,) if isinstance(on, str) else tuple(on),
                inputs=given,
                do=operations,
                **{name: getattr(checked, name) for name in _KEPT},
            )
        )

    def _take(self, written: _Written) -> None:
        if any(isinstance(each, Administer) for each in written.do):
            raise LibraryError("trigger: do: expected operations on objects, found one that is for the node itself")
        self._written = written

    @classmethod
    def loads(cls, data: bytes) -> TriggerForm:
        """From bytes that may come from anyone; its form is checked."""
        try:
            written = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise LibraryError(f"trigger: expected its packed form, found other bytes: {error}") from None
        self = cls.__new__(cls)
        self._take(written)
        self.made("library", _OWNER)
        return self

    def dumps(self) -> bytes:
        """What is published."""
        return _encode(self._written)

    @property
    def params(self) -> dict[str, Any]:
        """The values of its parameters, where who installs it gives none."""
        return definition.given(self._written)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """In words."""
        found = self._written
        condition = f" {found.when} {found.where}" if found.where else f" {found.when}"
        return f"on {', '.join(found.on)}{condition}"

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes, equal for those that are written in the same words."""
        return blake2b(self.dumps(), digest_size=16, person=b"hw-trigger-form").digest()

    def made(self, name: str, node: str, params: Mapping[str, Any] | None = None, **more: Any) -> Trigger:
        """The trigger under a name, for objects of a node; ObjectError with all that is wrong with it."""
        found = self._written
        values = definition.given(found)  # type: ignore[arg-type]
        unknown = [each for each in params or {} if each not in values]
        if unknown:
            raise LibraryError(
                f"trigger {name!r}: params: expected {', '.join(values) or 'none'}, found {unknown[0]!r}"
            )
        kept = {each: getattr(found, each) for each in _KEPT if each not in ("params", "notify", *more)}
        return definition.trigger(
            name,
            on=found.on,
            inputs=found.inputs,
            do=found.do,
            notify=False if found.notify is None else found.notify or True,
            params={**values, **(params or {})},
            node=node,
            **kept,
            **more,
        )


_KEPT = ("when", "where", "type", "history", "notify", "veto", "priority", "group", "coupling", "on_failure", "params")


def _input(given: str | tuple[str, str] | Input) -> Input:
    return given if isinstance(given, Input) else Input(given) if isinstance(given, str) else Input(*given)


__all__ = ["KIND", "TriggerForm"]
