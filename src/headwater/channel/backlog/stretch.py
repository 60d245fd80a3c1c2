"""Events of one source, some after another, and an interest that is run over them: the one way in which what was
published before is judged, for sinks that come later, for peers that catch up, and for whoever reads a backlog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwater.contextual import ContextInterest
from headwater.ir.interp import EventContext
from headwater.late import np, pa
from headwater.native.record import uses_meta

if TYPE_CHECKING:
    from headwater.interest import Interest
    from headwater.native.program import Native
    from headwater.runnable import Clock
    from headwater.types import EventType
    from headwater.types.model import Record


class PastContext(Protocol):
    """The context that a source has had: see `channel/source_context.py`."""

    @property
    def record(self) -> Record: ...

    def pieces(self, seqs: Any) -> Iterator[tuple[int, Mapping[str, Any] | None]]:
        """Of events with these numbers: up to which place they have had the same values, and which."""
        ...


class Stretch:
    """Events of one source, ascending: their numbers (`seqs`), times (`stamps`, nanoseconds), and what they are, as
    records or as rows.

    It speaks of all numbers after the stretch before it and up to `upto`: one that is not among `seqs` has not passed
    the interest that was asked for, is no event of the channel's present type, or was never given."""

    __slots__ = ("_records", "_rows", "_seqs", "_stamps", "type", "upto")

    def __init__(
        self, upto: int, seqs: Any, stamps: Any, type: EventType | None, *, records: Any = None, rows: Any = None
    ) -> None:
        """Numbers and times are arrays, or sequences, which become arrays if someone wants them. `type` is that of the
        events; None for bytes, of which there are `records` only."""
        self.upto, self._seqs, self._stamps, self.type = upto, seqs, stamps, type
        self._records, self._rows = records, rows

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def seqs(self) -> Any:
        if isinstance(self._seqs, Sequence):
            self._seqs = np.array(self._seqs, np.int64)
        return self._seqs

    @property
    def stamps(self) -> Any:
        if isinstance(self._stamps, Sequence):
            self._stamps = np.array(self._stamps, np.int64)
        return self._stamps

    def events(self) -> Iterator[tuple[int, int, bytes]]:
        """Number, time and record of each."""
        seqs, stamps = self._seqs, self._stamps
        seqs = seqs if isinstance(seqs, Sequence) else seqs.tolist()
        stamps = stamps if isinstance(stamps, Sequence) else stamps.tolist()
        return zip(seqs, stamps, self.records, strict=True)

    @property
    def records(self) -> list[bytes]:
        if self._records is None:
            assert self.type is not None
            self._records = self.type.arrow_to_records(self._rows)
        return self._records  # type: ignore[no-any-return]

    @property
    def rows(self) -> Any:
        """The same as a RecordBatch; needs `headwater[arrow]`."""
        if self._rows is None:
            assert self.type is not None, "bytes are no rows"
            self._rows = self.type.records_to_arrow(self._records)
        return self._rows

    @property
    def in_rows(self) -> bool:
        """Whether it came as rows, which are judged at once."""
        return self._rows is not None

    def take(self, places: Any) -> Stretch:
        """Those at these places, ascending."""
        if len(places) == len(self):
            return self
        if self._records is not None:
            records, rows = [self._records[place] for place in places.tolist()], None
        else:
            records, rows = None, self._rows.take(pa.array(places))
        return Stretch(self.upto, self.seqs[places], self.stamps[places], self.type, records=records, rows=rows)

    def part(self, first: int, last: int) -> Stretch:
        """Those at these places."""
        records = None if self._records is None else self._records[first:last]
        rows = None if self._rows is None else self._rows.slice(first, last - first)
        return Stretch(self.upto, self.seqs[first:last], self.stamps[first:last], self.type, records=records, rows=rows)

    def after(self, number: int) -> Stretch:
        """Those with numbers above this one."""
        first = int(np.searchsorted(self.seqs, number, "right"))
        if not first:
            return self
        records = None if self._records is None else self._records[first:]
        rows = None if self._rows is None else self._rows.slice(first)
        return Stretch(self.upto, self.seqs[first:], self.stamps[first:], self.type, records=records, rows=rows)


class StretchJudge:
    """A run of an interest over one source's events: give it stretches in their order. None passes everything.

    `runner` has the state by then, and may go on elsewhere with it."""

    def __init__(
        self,
        interest: Interest | None,
        source: str,
        node: str,
        *,
        clock: Clock | None = None,
        runner: Native | None = None,
        context: PastContext | None = None,
    ) -> None:
        self._context = context if isinstance(interest, ContextInterest) else None
        self.interest, self._source, self._node = interest, source, node
        self.runner = interest.start(clock) if runner is None and interest is not None else runner
        self._meta = self.runner is not None and uses_meta(self.runner.program)

    @property
    def stateful(self) -> bool:
        return self.interest is not None and self.interest.stateful

    def __call__(self, stretch: Stretch) -> Stretch:
        """What passes of it, or what is made of that."""
        if self.runner is None or not len(stretch):
            return stretch
        places, made = self._judge(stretch)
        if made is None:
            return stretch.take(places)
        assert self.interest is not None
        found = Stretch(stretch.upto, stretch.seqs[places], stretch.stamps[places], self.interest.output, **made)
        return found if self.interest.whole_at is None else self._marked(found, stretch.take(places))

    def _marked(self, made: Stretch, events: Stretch) -> Stretch:
        """Marks, or events themselves where these say so: records of two types, and so of none that could be said."""
        assert self.interest is not None and self.interest.whole_at is not None
        at = self.interest.whole_at
        records = [event if mark[at] else mark for mark, event in zip(made.records, events.records, strict=True)]
        return Stretch(made.upto, made.seqs, made.stamps, None, records=records)

    def places(self, stretch: Stretch) -> Any:
        """Where in it are those that pass."""
        return np.arange(len(stretch)) if self.runner is None else self._judge(stretch)[0]

    def _judge(self, stretch: Stretch) -> tuple[Any, dict[str, Any] | None]:
        """Where those are that pass, and what is made of them, as rows or as records, if that is something else."""
        if self._context is not None and len(stretch):
            return self._judge_by_context(self._context, stretch)
        return self._judge_rows(stretch) if stretch.in_rows else self._judge_records(stretch)

    def _judge_by_context(self, context: PastContext, stretch: Stretch) -> tuple[Any, dict[str, Any] | None]:
        """The same, each event by the context that it was published with."""
        assert self.runner is not None and isinstance(self.interest, ContextInterest)
        found, start = [], 0
        for end, values in context.pieces(stretch.seqs):
            known = values is not None
            self.runner.set_params(**self.interest.parameters(context.record, values or {}, known=known))
            part = stretch.part(start, end)
            places, made = self._judge_rows(part) if part.in_rows else self._judge_records(part)
            found.append((places + start, made))
            start = end
        if len(found) == 1:
            return found[0]
        places = np.concatenate([places for places, _ in found])
        parts = [made for _, made in found if made is not None]
        if not parts:
            return places, None
        if "records" in parts[0]:
            return places, {"records": [each for made in parts for each in made["records"]]}
        rows = pa.Table.from_batches([made["rows"] for made in parts]).combine_chunks()
        return places, {"rows": (rows.to_batches() or [parts[0]["rows"]])[0]}

    def _judge_rows(self, stretch: Stretch) -> tuple[Any, dict[str, Any] | None]:
        assert self.runner is not None
        result = self.runner.batch(stretch.rows, meta=self._about(stretch) if self._meta else None)
        return result.rows, None if result.output is None else {"rows": result.output}

    def _about(self, stretch: Stretch) -> dict[str, Any]:
        times = pa.array(stretch.stamps // 1000)
        return {"source": self._source, "node": self._node, "seq": pa.array(stretch.seqs), "time": times}

    def _judge_records(self, stretch: Stretch) -> tuple[Any, dict[str, Any] | None]:
        """One by one: what a ring has needs no code for batches, which takes its time to be made."""
        assert self.runner is not None and self.interest is not None
        if self.interest.output is None and not self._meta:
            test = self.runner.test
            return np.flatnonzero(np.fromiter(map(test, stretch.records), bool, len(stretch))), None
        run, places, made = self.runner.run, list[int](), list[bytes]()
        for place, (seq, stamp, record) in enumerate(stretch.events()):
            result = run(record, EventContext(self._source, self._node, seq, stamp // 1000))
            if result.passed:
                places.append(place)
                if result.output is not None:
                    made.append(result.output)
        return np.array(places, np.int64), None if self.interest.output is None else {"records": made}
