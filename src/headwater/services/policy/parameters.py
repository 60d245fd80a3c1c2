"""Parameters of a policy's interests: what is known of who asks, filled in where the events are.

    :user, :device, :device_kind, :node    texts
    :groups                                a set of texts
    :clearance, ...                        attributes of the user, by the names and types that the policy declares
    :here, ...                             the user's location, by the names that the policy gives its fields

What is not known is missing: a condition on it is undecided, and what is undecided is not shown. What does not change
while somebody is subscribed becomes part of the program, so that a policy costs an event no more than what it leaves to
be decided; where a user is stays a parameter, and changes between two events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.errors import HeadwaterError, ParameterError
from headwater.interest import Interest, SetOf, parse
from headwater.ir import walk
from headwater.ir.nodes import Const, Expr, InSet, Lookup, Missing, Param, ParamDecl, Program
from headwater.ir.params import bind
from headwater.services.policy.identity import PROVEN, Identity
from headwater.types.model import Record

# Texts of who asks, each empty where it is not known.
OF_IDENTITY = ("user", "device", "device_kind", "node")
RESERVED = (*OF_IDENTITY, "groups")
_NO_GROUP = "\0"  # what no group is called: in its place a set is never empty
SAMPLES: dict[str, object] = {"text": "", "bool": False, "int": 0, "float": 0.0}  # by the types that attributes have


def offered(attributes: Mapping[str, str], location: Mapping[str, object]) -> dict[str, object]:
    """Parameters that a policy's interests may use, each with a value of its type. `location` has such values of its
    own."""
    found: dict[str, object] = dict.fromkeys(OF_IDENTITY, "")
    found["groups"] = SetOf(str)
    found.update((name, SAMPLES[type]) for name, type in attributes.items())
    found.update(location)
    return found


def read(text: str, type: Record, parameters: Mapping[str, object]) -> tuple[Program, tuple[ParamDecl, ...]]:
    """The program of a policy's interest, in any notation, with the parameters that it uses; raises all that is wrong
    with it."""
    program, _ = parse(text, type, params=parameters, offered=True)
    used = _used(program)
    return replace(program, params=tuple(each for each in program.params if each.name in used)), program.params


def bound(
    program: Program, identity: Identity, location: Mapping[str, Any] | None, located: frozenset[str]
) -> Interest:
    """The interest of a policy for somebody: where it stands is known of who asks. `located` are the parameters of the
    location, which stay such while they are known."""
    values: dict[str, Any] = {}
    for decl in program.params:
        values[decl.name] = _value(decl, identity, location, located)
    stays = {name for name in located if values.get(name) is not None}

    def change(expr: Expr) -> Expr:
        match expr:
            case Param(name=name) if name not in stays:
                value = values[name]
                return Missing(expr.type) if value is None else Const(value, expr.type)
            case InSet(param=str(name)) if name not in stays:
                members = values[name]
                if members is None:
                    return Missing(expr.type)
                return replace(expr, param=None, values=tuple(Const(each, expr.a.type) for each in sorted(members)))
            case Lookup(param=name) if name not in stays:
                return Missing(expr.type)
            case _:
                return expr

    body = walk.map_block(program.body, lambda expr: walk.rebuild(expr, change))
    params = tuple(decl for decl in program.params if decl.name in stays)
    return Interest.from_program(replace(program, params=params, body=body), {name: values[name] for name in stays})


def _value(decl: ParamDecl, identity: Identity, location: Mapping[str, Any] | None, located: frozenset[str]) -> Any:
    """What a parameter is for somebody, as programs have it; None where that is not known, or is of another type."""
    name = decl.name
    given: Any
    if name in located:
        given = None if location is None else location.get(name)
    elif name == "groups":
        # That somebody is in no group is known of who was proven to be somebody, and of nobody else.
        given = identity.groups or ((_NO_GROUP,) if identity.how in PROVEN else None)
    elif name in OF_IDENTITY:
        given = getattr(identity, name) or None
        if name == "node" and given is not None:
            given = given.rpartition(".")[0] or given
    else:
        given = identity.attributes.get(name)
    if given is None:
        return None
    try:
        return bind([decl], {name: given})[name]
    except (ParameterError, HeadwaterError):
        return None  # an attribute of another type than the policy says is as good as none


def _used(program: Program) -> set[str]:
    used: set[str] = set()
    for expr in walk.all_expressions(program.body):
        match expr:
            case Param(name=name) | InSet(param=str(name)) | Lookup(param=name):
                used.add(name)
    return used


__all__ = ["RESERVED", "SAMPLES", "bound", "offered", "read"]
