"""An interest on events of a log: what passes, with the log's own columns before its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.errors import StoreError
from headwater.interest import Interest
from headwater.ir.inputs import fields_read
from headwater.late import np, pa
from headwater.native.record import uses_meta
from headwater.store.log.ordered_merge import joined, ranks, take
from headwater.store.log.schema import NODE, SEQ, SOURCE, TIME
from headwater.types.model import Field, Record

if TYPE_CHECKING:
    from headwater.native.program import Native

META = {"node": NODE, "source": SOURCE, "seq": SEQ, "time": TIME}


class Judge:
    """Runs an interest over batches of a log.

    An interest with state keeps it for each source: batches must come in the order of each source's events. A field
    that older events do not have is missing to the interest.
    """

    def __init__(self, interest: Interest, schema: pa.Schema, *, columns: list[str] | None = None) -> None:
        """`schema` is that of the log's table, `columns` what is wanted of the result; default: everything."""
        if not isinstance(interest, Interest):
            raise StoreError(
                f"interest: expected an Interest, found {type(interest).__name__}; make one with Interest(...)"
            )
        if interest.contextual:
            raise StoreError(
                "interest: expected one over what the log has, found one that reads the context of sources, which it "
                "has not; give its values: Interest(…, params={'context.NAME': …})"
            )
        log = [schema.field(name) for name in META.values()]
        if interest.output is None:
            fields = [field for field in schema if field.name not in META.values()]
        else:
            fields = list(interest.output.schema)
        known = [field.name for field in (*log, *fields)]
        self.columns = known if columns is None else check_columns(columns, known)
        made = {field.name: field for field in (*log, *fields)}
        self.schema = pa.schema([made[name] for name in self.columns])
        record = interest.type.record
        used = fields_read(interest.program)
        if lacking := [name for name in used if name not in schema.names and not record.by_name[name].optional]:
            raise StoreError(
                f"interest: expected fields that the log has, found {', '.join(map(repr, lacking))}, which it does "
                f"not; it has {', '.join(name for name in schema.names if name not in META.values())}"
            )
        kept = tuple(Field(field.name, field.type, True) for field in record.fields if field.name in used)
        # A record has at least one field, even where the interest reads none.
        loose = Record(record.name, kept or (Field(record.fields[0].name, record.fields[0].type, True),))
        self._interest = interest.on(loose)
        self._natives: dict[tuple[str, str], Native] = {}
        self._one = None if interest.stateful else self._interest.native()
        self._meta = uses_meta(self._interest.program)
        self.evaluated = self.passed = 0
        wanted = set(used) | (set(self.columns) if interest.output is None else set())
        self.needs = [name for name in schema.names if name in wanted or name in META.values()]

    @property
    def stateful(self) -> bool:
        return self._one is None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass, or what a transformation makes of them."""
        if self._one is not None:
            return self._run(self._one, batch)[0]
        found: list[tuple[pa.RecordBatch, Any]] = []
        for key, rows in by_source(batch):
            native = self._natives.get(key)
            if native is None:
                native = self._natives[key] = self._interest.native()
            made, passed = self._run(native, batch if len(rows) == batch.num_rows else take(batch, rows))
            found.append((made, rows[passed]))
        if len(found) == 1:
            return found[0][0]
        if not found:
            return empty(self.schema)
        order = np.argsort(np.concatenate([rows for _, rows in found]), kind="stable")
        return take(joined([made for made, _ in found]), order)

    def _run(self, native: Native, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        meta = {name: batch.column(column) for name, column in META.items()} if self._meta else None
        result = native.batch(self._interest.type.conform(batch), meta=meta)
        rows = result.rows
        self.evaluated += batch.num_rows
        self.passed += len(rows)
        own = [name for name in self.columns if result.output is None or name in META.values()]
        kept = batch.select(own)
        if len(rows) < batch.num_rows:
            kept = take(kept, rows)
        columns = [kept.column(name) if name in own else result.output.column(name) for name in self.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), rows


def by_source(batch: pa.RecordBatch) -> list[tuple[tuple[str, str], Any]]:
    """The rows of each node and source, as their numbers in order."""
    if not batch.num_rows:
        return []
    nodes, sources = batch.column(NODE), batch.column(SOURCE)
    codes = ranks(nodes).astype(np.int64) << 32 | ranks(sources)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=codes[order[0]] - 1))
    groups = np.split(order, starts[1:])
    return [((nodes[int(rows[0])].as_py(), sources[int(rows[0])].as_py()), rows) for rows in groups]


def check_columns(columns: list[str] | tuple[str, ...], known: list[str]) -> list[str]:
    """The columns, if they are all there."""
    wrong = [name for name in columns if name not in known]
    if wrong:
        raise StoreError(
            f"columns: expected some of {', '.join(known)}, found {', '.join(map(repr, wrong))}; name such as there are"
        )
    return list(columns)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of a schema."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
