"""A type guessed from how predicate text uses its fields, for looking at an interest before there is a type."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import InterestError
from headwater.ir.params import declare
from headwater.lang.predicate import parse
from headwater.types.model import BOOL, F64, I64, TEXT, TIMESTAMP, Field, Record, Type

_CANDIDATES = (F64, TEXT, I64, BOOL, TIMESTAMP)


def infer_record(text: str, params: Mapping[str, object] | None = None) -> Record:
    """The fields that the text names, each with the type that leaves the fewest problems; all are optional.

    Raises InterestError where the text cannot be read, so that no field is known.
    """
    decls = declare(params or {})

    def problems(types: Mapping[str, Type]) -> InterestError | None:
        fields = tuple(Field(name, type, optional=True) for name, type in types.items())
        try:
            parse(text, Record("Event", fields), params=decls)
        except InterestError as error:
            return error
        return None

    guess: dict[str, Type] = {}
    while (error := problems(guess)) is not None:
        unknown = {p.about: F64 for p in error.problems if p.about is not None and p.about not in guess}
        if not unknown:
            if not guess:
                raise error
            break
        guess |= unknown
    for name in guess:
        left = {type: problems(guess | {name: type}) for type in _CANDIDATES}
        guess[name] = min(_CANDIDATES, key=lambda type: len(e.problems) if (e := left[type]) else 0)
    return Record("Event", tuple(Field(name, type, optional=True) for name, type in guess.items()))
