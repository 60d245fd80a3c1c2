"""A mapping on a DataFrame of raw records: events, and what could not be taken, as two DataFrames.

For streams and declarative pipelines, where nothing may be counted, written or looked at on the way. It gives each
record the verdict and the reason that `ingest` gives it; positions, duplicates and lateness need all records at once,
and are left to `ingest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.errors import ConfigError, ConfigProblem, ExecutionError
from headwater.spark.ingest.inputs import Input, single_byte
from headwater.spark.ingest.lowering import BAD, GOOD, REASON, VERDICT, Scan, events, judged
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.paths import Route
from headwater.spark.ingest.reader import BYTES, RAW, _csv, _json, _text, follow

# What the meaning of a mapping depends on. A pipeline has them in its spec; they cannot be set in its code.
SETTINGS = {
    "spark.sql.session.timeZone": ("UTC", "Etc/UTC", "Z", "+00:00"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ",),
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED",),
    "spark.sql.ansi.enabled": ("true",),
}


def split(frame: Any, mapping: IngestMapping, *, keep: Sequence[str] = ()) -> tuple[Any, Any]:
    """Raw records parted into (events, quarantine). Nothing runs: the frame may be a stream.

    For CSV, JSON and text the frame has lines in a column `value`, as `spark.readStream.text` gives them; for "parquet"
    its columns are the record. Events have event_node, event_source, event_time and the fields: a log that they are
    published to numbers them. The quarantine has raw, raw_bytes and reason, after the columns of the frame that `keep`
    names. Blank lines, headers, and records with nothing to explode are in neither.

    A CSV header cannot be looked at in a frame: its columns are declared (`options.columns`), and lines that are like
    them are skipped.
    """
    _possible(mapping, keep)
    _same_meaning(frame)
    scan = _record(frame, mapping, tuple(keep)) if mapping.format == "parquet" else _lines(frame, mapping, tuple(keep))
    from pyspark.sql import functions as F

    found = judged(mapping, scan, reasons=True)
    good = events(mapping, found, ()).select(
        F.lit(mapping.node).alias("event_node"),
        F.col("event_source"),
        F.col("event_time"),
        *(F.col(f"`{f.name}`") for f in mapping.record.fields),
    )
    bad = found.where(F.col(VERDICT) == BAD).select(
        *(F.col(_kept(i)).alias(name) for i, name in enumerate(keep)),
        F.col(RAW).alias("raw"),
        F.col(BYTES).alias("raw_bytes"),
        F.col(REASON).alias("reason"),
    )
    return good, bad


def _possible(mapping: IngestMapping, keep: Sequence[str]) -> None:
    """ConfigError for what a frame cannot have done to it."""
    problems = []
    options, name = mapping.options, "split: mapping"
    if options.multiline:
        problems.append(ConfigProblem(f"{name}: options.multiline", "each record on one line", "true", "use ingest()"))
    if not _encoded(options.encoding):
        hint = "use ingest(), which rewrites such files"
        problems.append(
            ConfigProblem(f"{name}: options.encoding", "utf-8, or one byte per character", options.encoding, hint)
        )
    if mapping.duplicates.what != "keep":
        hint = "use ingest(), or dropDuplicates() on the events"
        problems.append(ConfigProblem(f"{name}: duplicates", '"keep"', f'"{mapping.duplicates.what}"', hint))
    if mapping.format == "csv" and not options.columns:
        hint = "all files of the frame must have these columns, in this order"
        problems.append(ConfigProblem(f"{name}: options.columns", "the names of the columns", "none", hint))
    taken = {"raw", "raw_bytes", "reason"} & set(keep)
    if isinstance(keep, str) or taken or len(set(keep)) != len(keep):
        expected = "names of columns, each once, and not raw, raw_bytes, reason"
        problems.append(ConfigProblem("split: keep", expected, repr(keep), 'keep=("file",)'))
    if problems:
        raise ConfigError(problems)


def _encoded(encoding: str) -> bool:
    import codecs

    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig") or single_byte(encoding) != ""


def _same_meaning(frame: Any) -> None:
    """ExecutionError where the session would give texts and times another meaning than `ingest` does."""
    conf = frame.sparkSession.conf
    wrong = [(name, conf.get(name), wanted[0]) for name, wanted in SETTINGS.items() if conf.get(name) not in wanted]
    if wrong:
        said = "; ".join(f"{name}: expected {wanted}, found {found}" for name, found, wanted in wrong)
        raise ExecutionError(
            f"split: this session reads times and numbers in another way. {said}. Set it with spark.conf.set, or in "
            "the configuration of a pipeline's spec"
        )


def _kept(number: int) -> str:
    return f"__keep_{number}"


class _Known:
    """A frame whose columns are told, since Spark must not be asked; `select("*", ...)` adds some that are not told."""

    def __init__(self, frame: Any, columns: list[str]) -> None:
        self._frame, self.columns = frame, columns

    def select(self, *columns: Any) -> Any:
        made = self._frame.select(*columns)
        return _Known(made, self.columns) if columns[:1] == ("*",) else made


def _lines(frame: Any, mapping: IngestMapping, keep: tuple[str, ...]) -> Scan:
    """Rows of text, bytes or lines of a DataFrame as a scan: decoded, and with what is wrong with those that cannot
    be."""
    from pyspark.sql import functions as F

    options = mapping.options
    kept = [F.col(name).alias(_kept(i)) for i, name in enumerate(keep)]
    own = (*(_kept(i) for i in range(len(keep))), RAW, BYTES)
    value = F.col("value").cast("string")
    table = single_byte(options.encoding)
    line, line_valid, spot = value, F.is_valid_utf8("__line"), None
    if table:
        pairs = [(chr(128 + i), c) for i, c in enumerate(table) if c != chr(128 + i)]
        line = F.decode(value.cast("binary"), "ISO-8859-1")
        line = F.translate(line, "".join(a for a, _ in pairs), "".join(b for _, b in pairs)) if pairs else line
        line_valid, spot = ~F.contains("__line", F.lit("\ufffe")), F.instr("__line", "\ufffe")
    else:
        spot = F.octet_length(F.substring_index(F.make_valid_utf8("__line"), "\ufffd", 1)) + 1
    lines = frame.select(*kept, value.alias("__value"), line.alias("__line"))
    bytes_of = F.col("__value").cast("binary")
    lines = lines.select(
        "*",
        F.when(line_valid, F.col("__line")).alias(RAW),
        F.when(~line_valid, bytes_of).alias(BYTES),
    )
    valid = F.col(BYTES).isNull()
    byte = F.hex(F.substring(bytes_of, spot, F.lit(1)))
    said = F.concat(F.lit(f"not {options.encoding}: byte 0x"), byte, F.lit(" at "), spot.cast("string"))
    known: Any = _Known(lines, [*own, "__value", "__line"])
    why = F.when(~valid, said)
    match mapping.format:
        case "csv":
            header = options.delimiter.join(options.columns) if options.header else ""
            return _csv(mapping, Input("", "", 0, header, options.columns), lines, valid, why, own)
        case "json":
            return _json(mapping, known, valid, why, own)
        case _:
            return _text(mapping, lines, valid, why, own)


def _record(frame: Any, mapping: IngestMapping, keep: tuple[str, ...]) -> Scan:
    """The columns of the frame are the record. Spark is asked for them, unless they are `declared`."""
    from pyspark.sql import functions as F

    schema = frame.schema
    kept = [F.col(name).alias(_kept(i)) for i, name in enumerate(keep)]
    rows = frame.select(*kept, F.struct(*(F.col(f"`{name}`") for name in schema.names)).alias("__object"))
    rows = rows.select("*", F.to_json("__object").alias(RAW), F.lit(None).cast("binary").alias(BYTES))

    def find(route: Route, element: Any) -> Any:
        return follow(route, element, F.col("__object"), schema, mapping)

    own = (*(_kept(i) for i in range(len(keep))), RAW, BYTES)
    return Scan(rows, find, F.lit(GOOD), F.lit(None).cast("string"), own)


__all__ = ["split"]
