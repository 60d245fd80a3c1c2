"""Every error Headwater raises, drawn once.

    HeadwaterError
    ├── TypeDeclarationError   an event type cannot be declared like this
    ├── EncodeError            a value does not fit its event type        (carries .path)
    ├── DecodeError            bytes are not a record of the event type   (carries .offset)
    ├── EvolutionError         two event types do not fit together        (carries .problems, one a field)
    ├── InterestError          an interest is faulty                      (carries .problems, each with its place)
    │   ├── InterestRefused    an interest is sound but too large, too deep, too costly or endless
    │   └── PatternError       a pattern is faulty, or too much           (carries .problems, each with its place)
    ├── SerialError            bytes are not the serial form of an interest or pattern
    ├── ParameterError         a parameter's value is missing, unknown or of another type
    ├── ExecutionError         an execution cannot run this interest on this input
    ├── KernelError            a function is not in the kernel language (carries .problems, each with its line)
    ├── MissingExtra           a package is not installed that this needs, and not everything   (carries .extra)
    └── ServiceError           an event service cannot do this
        ├── ChannelError       a channel's name or type does not fit, or there is no such channel
        ├── ClosedError        the node, channel, source or subscription is closed
        ├── SubscriptionError  a subscription cannot be made like this
        ├── QueueFull          a sink's queue is full and its policy is to say so   (carries .subscription)
        ├── FactError          an event contradicts what its source stated
        ├── ConfigError        a configuration is not possible            (carries .problems, each with its place)
        ├── ObjectError        an object's name, type or value does not fit, or there is no such object
        │   └── TransactionError   a transaction was not done       (carries .problems, each with its operation)
        ├── QuestionError      a question cannot be asked or answered like this
        │   ├── NoAnswerer     nobody is there to answer it
        │   ├── AnswerError    who was asked has failed           (carries .node, .who)
        │   └── Unanswered     its time is over
        ├── LibraryError       no such name or version in a library, or it may not be published, or was withdrawn
        ├── StoreError         a node's state cannot be opened, read or written
        └── FederationError    nodes cannot work together like this
            ├── FrameError     bytes from another node are not a frame
            ├── SecurityError  who sent this is not known, or may not do it    (carries .reason, .offender)
            ├── Unreachable    a node does not answer
            └── LinkDown       a link to another node has ended

A message names the place, what was expected, what was found and what to do.

What is allowed and hardly meant, such as an interest that no event can pass, is a Python warning: HeadwaterWarning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class HeadwaterError(Exception):
    """The base of everything Headwater raises."""


class HeadwaterWarning(UserWarning):
    """Something is allowed and hardly meant, such as an interest that no event can pass."""


class TypeDeclarationError(HeadwaterError, TypeError):
    """An event type cannot be declared like this."""


class EncodeError(HeadwaterError, ValueError):
    """A value does not fit its event type; `path` names the field."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class DecodeError(HeadwaterError, ValueError):
    """Bytes are not a record of the event type; `offset` is where that shows."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(f"{message} (at byte {offset})" if offset is not None else message)
        self.offset = offset


class EvolutionError(HeadwaterError, TypeError):
    """Two event types do not fit together; `problems` has one line per offending field."""

    def __init__(self, title: str, problems: Sequence[str]) -> None:
        super().__init__("\n".join([title, *(f"  - {problem}" for problem in problems)]))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an interest, at one place of its text."""

    message: str
    line: int
    column: int
    excerpt: str = ""
    width: int = 1
    expected: str | None = None
    found: str | None = None
    hint: str | None = None
    caret: int | None = None  # where the place is in the excerpt, if that was cut
    about: str | None = None  # the field that the input does not have

    def __str__(self) -> str:
        lines = [f"line {self.line}, column {self.column}: {self.message}"]
        if self.expected is not None:
            lines.append(f"    expected: {self.expected}")
        if self.found is not None:
            lines.append(f"    found:    {self.found}")
        if self.excerpt:
            lines.append(f"    | {self.excerpt}")
            lines.append(
                f"    | {' ' * (self.column - 1 if self.caret is None else self.caret)}{'^' * max(1, self.width)}"
            )
        if self.hint is not None:
            lines.append(f"    hint: {self.hint}")
        return "\n".join(lines)


SHOWN = 50  # problems in a message; `.problems` has them all


class InterestError(HeadwaterError, ValueError):
    """An interest is faulty; `problems` lists every place at once."""

    def __init__(self, problems: Sequence[Problem], title: str = "") -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''} in this interest"
        lines = [title or count, *(str(problem) for problem in problems[:SHOWN])]
        if len(problems) > SHOWN:
            lines.append(f"and {len(problems) - SHOWN:,} more")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


class InterestRefused(InterestError):
    """An interest is sound but too large, too deep, too costly or endless."""


class PatternError(InterestError):
    """A pattern is faulty, can never match, or is too much; `problems` lists every place at once."""

    def __init__(self, problems: Sequence[Problem], title: str = "") -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''} in this pattern"
        super().__init__(problems, title or count)


class SerialError(HeadwaterError, ValueError):
    """Bytes are not the serial form of an interest or pattern."""


class ParameterError(HeadwaterError, ValueError):
    """A parameter's value is missing, unknown or of another type."""


class ExecutionError(HeadwaterError, RuntimeError):
    """An execution cannot run this interest on this input."""


class KernelError(HeadwaterError, TypeError):
    """A function is not in the kernel language; `problems` has each line and the reason."""

    def __init__(self, file: str, problems: Sequence[tuple[int, str]]) -> None:
        super().__init__("\n".join(f"{file}:{line}: {why}" for line, why in problems))
        self.problems = tuple(problems)


class MissingExtra(HeadwaterError, ImportError):
    """A package is not installed that this needs, and not everything; `extra` is the extra that brings it."""

    def __init__(self, message: str, extra: str = "") -> None:
        super().__init__(message)
        self.extra = extra


class ServiceError(HeadwaterError):
    """An event service cannot do this."""


class ChannelError(ServiceError, ValueError):
    """A channel's name or type does not fit, or there is no such channel."""


class ClosedError(ServiceError, RuntimeError):
    """The node, channel, source or subscription is closed."""


class SubscriptionError(ServiceError, ValueError):
    """A subscription cannot be made like this."""


class QueueFull(ServiceError, RuntimeError):
    """A sink's queue is full and its policy is to say so; `subscription` is the name of the slow one."""

    def __init__(self, message: str, subscription: str = "") -> None:
        super().__init__(message)
        self.subscription = subscription


class FactError(ServiceError, ValueError):
    """An event contradicts what its source stated."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One setting that is not possible, or that contradicts another."""

    place: str  # file, table and key: "service.toml: [dispatch] maximum", or in code "Pool: maximum"
    expected: str
    found: str
    hint: str | None = None

    def __str__(self) -> str:
        line = f"{self.place}: expected {self.expected}, found {self.found}"
        return f"{line}; {self.hint}" if self.hint else line


class ConfigError(ServiceError, ValueError):
    """A configuration is not possible; `problems` lists every setting at once."""

    def __init__(self, problems: Sequence[ConfigProblem], title: str = "") -> None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''} in this configuration"
        super().__init__("\n".join([title or count, *(f"  - {problem}" for problem in problems)]))
        self.problems = tuple(problems)


class ObjectError(ServiceError, ValueError):
    """An object's name, type or value does not fit, or there is no such object."""


@dataclass(frozen=True, slots=True)
class TransactionProblem:
    """What is wrong with one operation of a transaction, counted from 1; 0: with the transaction as a whole."""

    operation: int
    text: str

    def __str__(self) -> str:
        return f"operation {self.operation}: {self.text}" if self.operation else self.text


class TransactionError(ObjectError):
    """A transaction was not done, and has changed nothing; `problems` lists everything at once."""

    def __init__(self, problems: Sequence[TransactionProblem], title: str = "") -> None:
        lines = [title or "this transaction was not done", *(f"  - {problem}" for problem in problems[:SHOWN])]
        if len(problems) > SHOWN:
            lines.append(f"  and {len(problems) - SHOWN:,} more")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


class Busy(ServiceError, RuntimeError):
    """A node has as much to do for this one as it takes on at once; `after` so many seconds it may be asked again."""

    def __init__(self, message: str, after: float = 0.25) -> None:
        super().__init__(message)
        self.after = after


class QuestionError(ServiceError):
    """A question cannot be asked or answered like this."""


class NoAnswerer(QuestionError):
    """Nobody is there who answers such a question."""


class AnswerError(QuestionError):
    """Who was asked has failed: `who` of `node`. The message has the text of the error there."""

    def __init__(self, message: str, node: str = "", who: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.who = who


class Unanswered(QuestionError, TimeoutError):
    """The time of a question is over, and nobody has answered it."""


class LibraryError(ServiceError, ValueError):
    """There is no such name or version in a library, or it may not be published so, or was withdrawn."""


class StoreError(ServiceError):
    """A node's state cannot be opened, read or written."""


class FederationError(ServiceError):
    """Nodes cannot work together like this."""


class FrameError(FederationError, ValueError):
    """Bytes from another node are not a frame."""


class SecurityError(FederationError):
    """Who sent this is not known, or may not do it.

    `reason` is one word for counters, such as "replayed"; `offender` is who says to have sent it, or is known to have.
    """

    def __init__(self, message: str, reason: str = "", offender: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.offender = offender


class Unreachable(FederationError):
    """A node does not answer."""


class LinkDown(FederationError):
    """A link to another node has ended."""
