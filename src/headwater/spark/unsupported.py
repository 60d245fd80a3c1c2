"""What no Column of Spark can say exactly, and why: then a program runs as an Arrow function (`frame.py`).

Operations are named as in `ir/backend.py`. What is not here has a Column that agrees with the interpreter.
"""

from __future__ import annotations

from headwater.ir.backend import ARRAY_VARIABLE, LOOP, OUTPUT_ELEMENT, STATE
from headwater.ir.functions import FUNCTIONS

_DIVISION = "Spark has no exact division of unsigned 64-bit integers"
_BITS = "Spark has no exact bit operators of unsigned 64-bit integers"

UNSUPPORTED: dict[str, str] = {
    STATE: "it has state, which depends on the order of events",
    LOOP: "it has a loop",
    ARRAY_VARIABLE: "it has an array variable",
    OUTPUT_ELEMENT: "it fills an array of the output element by element",
    "tdiv u64": _DIVISION,
    "fdiv u64": _DIVISION,
    "and u64": _BITS,
    "or u64": _BITS,
    "xor u64": _BITS,
    "shl u64": _BITS,
    "shr u64": _BITS,
} | {
    f"{fn}()": f"Spark's {fn}() differs from the C library's in the last bit"
    for fn, function in FUNCTIONS.items()
    if function.libm
}
