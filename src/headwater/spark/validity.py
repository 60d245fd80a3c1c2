"""What a column of Spark may hold though the type of its field does not, as a condition in Spark SQL.

A Spark string may be any bytes, a timestamp any 64 bits, the name of a member any text, and unsigned integers are kept
in wider types. A filter looks past that; an output that takes it over would be an invalid event.
"""

from __future__ import annotations

from headwater.ir.nodes import Call, Cond, Expr, Load, Meta
from headwater.spark.sql_text import decimal, integer, name, text_literal, type_name
from headwater.types.model import TEXT, TIMESTAMP, U64, Array, Enum, List, Record, Scalar, Type

_PASSING_ON = ("coalesce", "min", "max", "lower", "upper")  # functions whose result is an argument, as good as that was


def takes_over(expr: Expr) -> bool:
    """Whether its value may be one of the event's as it is: everything that is computed is checked anyhow."""
    match expr:
        case Load() | Meta():
            return True
        case Cond(then=then, other=other, neither=neither):
            return any(map(takes_over, (then, other, neither)))
        case Call(fn=fn, args=args):
            return fn in _PASSING_ON and any(map(takes_over, args))
        case _:
            return False


def malformed(text: str, type: Type, depth: int = 0) -> str | None:
    """True where the value is none of its type; None if it cannot be. Null where there is no value."""
    match type:
        case Scalar() if type == TEXT:
            return f"NOT is_valid_utf8({text})"
        case Scalar() if type == TIMESTAMP:
            return f"unix_micros({text}) NOT BETWEEN {TIMESTAMP.range[0]}L AND {TIMESTAMP.range[1]}L"
        case Scalar() if type.is_integer and not type.is_signed:
            least, greatest = (_number(bound, type) for bound in type.range)
            return f"{text} NOT BETWEEN {least} AND {greatest}"
        case Enum(members=members):
            return f"{text} NOT IN ({', '.join(text_literal(member) for member, _ in members)})"
        case List(element=element):
            return _some(text, element, depth)
        case Array(element=element, shape=shape):
            return _some(text, Array(element, shape[1:]) if len(shape) > 1 else element, depth)
        case Record(fields=fields):
            parts = [malformed(f"{text}.{name(field.name)}", field.type, depth) for field in fields]
            return any_of([part for part in parts if part is not None])
        case _:
            return None


def any_of(parts: list[str]) -> str | None:
    """True where any is; what is null counts as false."""
    return f"({' OR '.join(f'coalesce({part}, FALSE)' for part in parts)})" if parts else None


def _some(text: str, element: Type, depth: int) -> str | None:
    inner = malformed(f"e{depth}", element, depth + 1)
    return None if inner is None else f"exists({text}, e{depth} -> coalesce({inner}, FALSE))"


def _number(value: int, type: Type) -> str:
    return decimal(value) if type == U64 else integer(value, type_name(type))
