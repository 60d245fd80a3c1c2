"""The serial form of an interest: what travels between nodes, and what its fingerprint is taken from.

    bytes   = msgpack [version, types, input, output?, params, variables, body] or, with text, [..., notation, text]
    types   = composite types, inner ones first; a type is a number: scalars have fixed ones, then this table's
    path    = [step, ...]; a number is the position of a field in its record, an array is an index expression
    node    = [tag, ...]; the types of expressions are not written: they follow

Spans and loop bounds are left out: who receives a program analyses it again. The bytes may come from an enemy: sizes
and counts are limited, every tag and arity is checked, and the program is verified before anyone sees it.
"""

from __future__ import annotations

from hashlib import blake2b

from headwater.errors import SerialError
from headwater.ir.encode import PARAM_KINDS, VERSION, Encoder, has_too_many_parts, pack
from headwater.ir.nodes import Program
from headwater.ir.rewrite import normalise
from headwater.ir.unserial import MAX_SIZE, decode
from headwater.types.model import Record, canonical


def dumps(program: Program, *, with_text: bool = False) -> bytes:
    """The serial form; `with_text` keeps the notation and the text it was written in, for people."""
    encoder = Encoder(program)
    body = encoder.block(program.body)
    params = [[p.name, PARAM_KINDS.index(p.kind), encoder.type(p.type),
               None if p.value is None else encoder.type(p.value)] for p in program.params]  # fmt: skip
    variables = [[v.name, encoder.type(v.type), list(v.shape), v.state, [c.value for c in v.init]]
                 for v in program.variables]  # fmt: skip
    ends = [encoder.type(program.input), None if program.output is None else encoder.type(program.output)]
    form = [VERSION, encoder.table, *ends, params, variables, body]
    try:
        data = pack([*form, program.notation, program.text] if with_text else form)
    except RecursionError:
        raise SerialError("the program nests too deeply for its serial form") from None
    if len(data) > MAX_SIZE:
        raise SerialError(f"the serial form takes {len(data):,} bytes, more than {MAX_SIZE:,}")
    if has_too_many_parts(data):
        raise SerialError("the serial form has too many parts")
    return data


def loads(data: bytes) -> Program:
    """The program that these bytes are the serial form of, verified; SerialError if they are not."""
    return decode(data)


def fingerprint(program: Program) -> bytes:
    """16 bytes, equal for interests with equal normal forms, on every machine.

    Names of variables and bounds of loops do not matter, names of parameters do.
    """
    return fingerprint_of_normal(normalise(program))


def fingerprint_of_normal(program: Program) -> bytes:
    """The same for a program that is a normal form already."""
    encoder = Encoder(program, canonical=True)
    body = encoder.block(program.body)
    params = [[p.name, p.kind, canonical(p.type), None if p.value is None else canonical(p.value)]
              for p in program.params]  # fmt: skip
    variables = [[encoder.type(v.type), v.shape, v.state, [c.value for c in v.init]] for v in program.variables]
    output = None if program.output is None else _digest(program.output)
    form = [VERSION, _digest(program.input), output, params, variables, body]
    return blake2b(pack(form), digest_size=16, person=b"hw-interest").digest()


_digests: dict[int, tuple[Record, bytes]] = {}


def _digest(record: Record) -> bytes:
    """128 bits of a type: an enemy must not find two types under one fingerprint, as code is cached by it."""
    found = _digests.get(id(record))
    if found is None or found[0] is not record:
        if len(_digests) > 1_000:
            _digests.clear()
        found = _digests[id(record)] = (record, blake2b(canonical(record).encode(), digest_size=16).digest())
    return found[1]
