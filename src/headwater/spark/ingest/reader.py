"""Raw records as Spark frames, one for each kind of file (see `lowering.Scan`).

CSV, JSON and text are read line by line, as bytes: so every line is seen, blank ones too, an encoding is checked and
not guessed, and a record's line number is its place. The position of a record in the input, `__at`, is the number of
its piece of a file in the upper 30 bits, and its row in the task that read it in the lower 33: it increases in the
order of the input.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import Any

from headwater.late import pa, pq
from headwater.spark.ingest.inputs import Input, single_byte
from headwater.spark.ingest.lowering import BAD, BLANK, GOOD, HEADER, Scan, raw_type, routes
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.paths import Route, Step

AT, FILE, BLOCK, ROW, RAW, BYTES = "__at", "__file", "__block", "__row", "__raw", "__bytes"
PIECE = 4 << 20  # bytes; Spark splits files in no smaller pieces (ingest.py sees to that)
ROWS = 33  # bits
MASK = (1 << ROWS) - 1
DELIMITERS = 1 << 20  # in a line with quotes; the parser has room for so many cells
_FEW = 8  # files that are told apart by comparing their names
_META = ".$|()[{^?*+\\"  # signs that mean something in a regular expression
_PAIRS = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|"
    r"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def pieces(size: int) -> int:
    """How many numbers of pieces a file takes."""
    return size // PIECE + 1


def groups(mapping: IngestMapping, inputs: list[Input]) -> list[list[Input]]:
    """Files that can be read together."""
    found: dict[Any, list[Input]] = {}
    for each in inputs:
        found.setdefault((each.header, each.columns, each.signs, each.schema, each.utf8), []).append(each)
    return list(found.values())


def scan(spark: Any, mapping: IngestMapping, files: list[Input], places: dict[str, int], *, details: bool) -> Scan:
    """Files of one group. `places`: the first piece's number of each. With `details` where each record is goes along,
    and its raw text."""
    if mapping.format == "parquet":
        return _parquet(spark, mapping, files, places, details)
    lines, valid, why = _lines(spark, mapping, files, places, details)
    keep = (AT, FILE, BLOCK, ROW, RAW, BYTES) if details else (AT,)
    match mapping.format:
        case "csv":
            return _csv(mapping, files[0], lines, valid, why, keep)
        case "json":
            return _json(mapping, lines, valid, why, keep)
        case _:
            return _text(mapping, lines, valid, why, keep)


def _position(
    frame: Any, spark: Any, mapping: IngestMapping, files: list[Input], places: dict[str, int], details: bool,
    columns: list[Any],
) -> Any:  # fmt: skip
    """`columns` with AT, and with details FILE, BLOCK and ROW."""
    from pyspark.sql import functions as F

    several = len(files) > 1
    if details or mapping.format == "parquet":
        file, block, scheme = F.col("_metadata.file_path"), F.col("_metadata.file_block_start"), "file:"
    else:  # what the task knows of itself; metadata would be copied into every row
        file, block, scheme = F.input_file_name(), F.input_file_block_start(), "file://"
    named = [(f"{scheme}{f.spark}", places[f.uri]) for f in files]
    meta = [block.alias(BLOCK), F.monotonically_increasing_id().alias("__id")]
    if several or details:
        meta.append(file.alias(FILE))
    frame = frame.select(*columns, *meta)
    if not several:
        first = F.lit(places[files[0].uri])
    elif len(files) <= _FEW:
        first = reduce(lambda a, f: a.when(F.col(FILE) == f[0], F.lit(f[1])), named, F)
    else:
        table = spark.createDataFrame(named, f"{FILE} string, __first_piece bigint")
        frame = frame.join(F.broadcast(table), FILE, "left")
        first = F.col("__first_piece")
    piece = first.cast("bigint") + F.shiftright(BLOCK, PIECE.bit_length() - 1)
    at = F.shiftleft(piece, ROWS).bitwiseOR(F.col("__id").bitwiseAND(F.lit(MASK)))
    kept = [F.col(name) for name in frame.columns if name not in ("__id", "__first_piece", FILE, BLOCK)]
    if details:
        kept += [F.col(FILE), F.col(BLOCK), F.col("__id").alias(ROW)]
    return frame.select(*kept, at.alias(AT))


def _lines(
    spark: Any, mapping: IngestMapping, files: list[Input], places: dict[str, int], details: bool
) -> tuple[Any, Any, Any]:
    """A frame with `__line`, whether it is sound, and what is wrong with it."""
    from pyspark.sql import functions as F

    frame = spark.read.text([each.uri for each in files])
    frame = _position(frame, spark, mapping, files, places, details, [F.col("value")])
    value, encoding = F.col("value"), mapping.options.encoding
    table = "" if files[0].utf8 else single_byte(encoding)
    others = [F.col(name) for name in frame.columns if name != "value"]
    if table:
        latin = F.decode(value.cast("binary"), "ISO-8859-1")
        pairs = [(chr(128 + i), c) for i, c in enumerate(table) if c != chr(128 + i)]
        line = F.translate(latin, "".join(a for a, _ in pairs), "".join(b for _, b in pairs)) if pairs else latin
        frame = frame.select(*others, line.alias("__line"), *([value] if details else []))
        valid = ~F.contains("__line", F.lit("\ufffe")) if "\ufffe" in table else F.lit(True)
        spot = F.instr("__line", "\ufffe")
    else:
        frame = frame.select(*others, value.alias("__line"), *([value] if details else []))
        valid = F.is_valid_utf8("__line")
        made = F.make_valid_utf8("__line")
        spot = F.octet_length(F.substring_index(made, "\ufffd", 1)) + 1
    if not details:
        return frame, valid, F.lit(None)
    if files[0].utf8:
        why = F.lit(f"not {encoding}: there are bytes that stand for nothing in it")
    else:
        byte = F.hex(F.substring(F.col("value").cast("binary"), spot, F.lit(1)))
        why = F.concat(F.lit(f"not {encoding}: byte 0x"), byte, F.lit(" at "), spot.cast("string"))
    signs = files[0].signs
    text = F.translate("__line", "".join(signs), "\r\n") if signs else F.col("__line")
    frame = frame.select(
        "*", F.when(valid, text).alias(RAW), F.when(~valid, F.col("value").cast("binary")).alias(BYTES)
    )
    return frame, valid, F.when(~valid, why)


def _blank() -> Any:
    from pyspark.sql import functions as F

    return F.trim("__line") == ""


# ── CSV ──


def _csv(mapping: IngestMapping, file: Input, frame: Any, valid: Any, why: Any, keep: tuple[str, ...]) -> Scan:
    """Lines of CSV as columns. Those without quotes are parted by `split`; only the others go through a CSV parser."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    options, columns = mapping.options, file.columns
    schema = T.StructType([T.StructField(f"c{i}", T.StringType()) for i in range(len(columns))])
    schema = schema.add(T.StructField("__corrupt", T.StringType()))
    how = {"sep": options.delimiter, "quote": options.quote, "escape": options.quote, "mode": "PERMISSIVE",
           "columnNameOfCorruptRecord": "__corrupt", "maxCharsPerColumn": "-1",
           "maxColumns": str(DELIMITERS)}  # fmt: skip
    line, quote, delimiter = F.col("__line"), options.quote, options.delimiter
    quoted = F.from_csv(line, schema.simpleString()[7:-1].replace(":", " "), how)
    none = F.array().cast("array<string>")

    # Most lines have no quotes, and are parted in half the time that a CSV parser takes.
    frame = frame.select("*", F.contains(line, F.lit(quote)).alias("__quoted"))
    is_quoted = F.col("__quoted")
    parted = F.split(line, delimiter if delimiter not in _META else f"\\{delimiter}", -1)
    # The parser throws if it has no room, and that would be the end of everything.
    delimiters = F.length(line) - F.length(F.replace(line, F.lit(delimiter), F.lit("")))
    too_many = is_quoted & (F.octet_length(line) >= DELIMITERS) & (delimiters >= DELIMITERS)
    frame = frame.select("*", F.when(is_quoted & ~too_many, quoted).alias("__parsed"))
    parsed = F.col("__parsed")
    in_order = F.when(
        parsed.isNotNull() & parsed["__corrupt"].isNull(), F.array(*(parsed[f"c{i}"] for i in range(len(columns))))
    )
    cells = F.when(is_quoted, in_order.otherwise(none)).otherwise(parted)
    frame = frame.select("*", cells.alias("__cells"))
    odd = (F.length(line) - F.length(F.replace(line, F.lit(quote), F.lit("")))) % 2 == 1
    is_open = is_quoted & odd & line.rlike(_open_quote(quote, delimiter))
    short = F.size("__cells") != len(columns)
    verdict = F.when(_blank(), BLANK)
    if options.header:
        verdict = verdict.when(line == file.header, HEADER)
    if options.comment:
        verdict = verdict.when(F.startswith(F.ltrim(line), F.lit(options.comment)), HEADER)
    verdict = verdict.when(~valid | short | is_open, BAD).otherwise(GOOD)
    q, d = _sign(quote), _sign(delimiter)
    found = F.size(F.split(F.regexp_replace(line, f"{q}[^{q}]*{q}", ""), d, -1)).cast("string")
    counted = F.concat(F.lit(f"expected {len(columns)} columns, found "), found)
    unclosed = "a quote is not closed" + ("" if options.multiline else "; if cells have line ends: multiline = true")
    crowded = F.lit(f"expected a line with quotes to have less than {DELIMITERS:,} delimiters, found more")
    reason = F.coalesce(why, F.when(too_many, crowded), F.when(is_open, F.lit(unclosed)), F.when(short, counted))
    known = {name: i for i, name in reversed(list(enumerate(columns)))}
    twice = {name for name in columns if columns.count(name) > 1}
    signs = file.signs

    def find(route: Route, element: Any) -> Any:
        if route.start:
            return _of_element(route, element, T.StringType())
        name = route.steps[0]
        if name not in known or name in twice:
            return None
        cell = F.get("__cells", F.lit(known[name]))
        cell = F.when(cell != "", cell)
        return F.translate(cell, "".join(signs), "\r\n") if signs else cell, T.StringType()

    return Scan(frame, find, verdict, reason, keep)


def _sign(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _open_quote(quote: str, delimiter: str) -> str:
    """A line whose last cell begins with a quote that is never closed."""
    q, d = _sign(quote), _sign(delimiter)
    inner = f"[^{q}]*+(?:{q}{q}[^{q}]*+)*+"
    return f"^(?:(?:{q}{inner}{q}[^{d}]*+|[^{q}{d}][^{d}]*+)?+{d})*+{q}{inner}$"


def _of_element(route: Route, element: Any, given: Any) -> Any:
    from pyspark.sql import types as T

    each, index = element
    return (index, T.IntegerType()) if route.start == "index" else (each, given)


# ── text by a pattern ──


def _text(mapping: IngestMapping, frame: Any, valid: Any, why: Any, keep: tuple[str, ...]) -> Scan:
    """Lines that a pattern takes apart, by one replacement that leaves its groups between marks."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    pattern = mapping.options.pattern
    names = re.compile(pattern).groupindex
    java = java_pattern(pattern)
    line = F.col("__line")
    whole = "\x02" + "\x01".join(f"${names[name]}" for name in names)
    frame = frame.select("*", F.regexp_replace(line, f"^(?:{java})\\z", whole).alias("__whole"))
    frame = frame.select(
        "*", F.split(F.substring(F.col("__whole"), F.lit(2), F.length("__whole")), "\x01").alias("__parts")
    )
    strange = F.contains(line, F.lit("\x01")) | F.contains(line, F.lit("\x02"))
    unlike = ~F.startswith("__whole", F.lit("\x02")) | strange
    verdict = F.when(_blank(), BLANK).when(~valid | unlike, BAD).otherwise(GOOD)
    reason = F.coalesce(why, F.when(unlike, F.lit("it is not like the pattern")))
    order = {name: i for i, name in enumerate(names)}

    def find(route: Route, element: Any) -> Any:
        if route.start:
            return _of_element(route, element, T.StringType())
        if route.steps[0] not in order:
            return None
        cell = F.get("__parts", F.lit(order[route.steps[0]]))
        return F.when(cell != "", cell), T.StringType()

    return Scan(frame, find, verdict, reason, keep)


_TOKEN = re.compile(r"\(\?P<\w+>|\(\?P=(\w+)\)|\\.|\[\^?\]?|.", re.DOTALL)


def java_pattern(pattern: str) -> str:
    """A regular expression of Python's as one of Java's: groups without names, the letters of all scripts, and no sign
    within [] that has a meaning in Java only."""
    names = re.compile(pattern).groupindex
    made, inside = "(?U)", False
    for found in _TOKEN.finditer(pattern):
        text = found[0]
        if text[0] == "\\":
            made += "\\z" if text == "\\Z" else text
        elif inside:
            inside = text != "]"
            made += "".join(f"\\{sign}" if sign in "[&~" else sign for sign in text)
            inside = inside and not (text[0] == "[" and text.endswith("]"))
        elif text[0] == "[":
            inside = True
            made += text.replace("]", "\\]")
        elif found[1]:
            made += f"\\{names[found[1]]}"
        else:
            made += "(" if text.startswith("(?P<") else text
    return made


# ── JSON ──


def _json(mapping: IngestMapping, frame: Any, valid: Any, why: Any, keep: tuple[str, ...]) -> Scan:
    """Lines of JSON as columns of the types that the mapping wants; those with something after the object are bad."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    schema = json_schema(mapping)
    root = T.StructType([T.StructField("v", T.ArrayType(schema)), T.StructField("__corrupt", T.StringType())])
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "__corrupt", "allowSingleQuotes": "false",
           "allowNonNumericNumbers": "false"}  # fmt: skip
    line = F.col("__line")
    # Within an array nothing can follow the object unseen.
    wrapped = F.concat(F.lit('{"v":['), line, F.lit("]}"))
    frame = frame.select("*", F.from_json(wrapped, root, how).alias("__json"))
    frame = frame.select(
        *(name for name in frame.columns if name != "__json"),
        F.get(F.col("__json.v"), F.lit(0)).alias("__object"),
        F.size("__json.v").alias("__count"),
        F.col("__json.__corrupt").isNotNull().alias("__bad"),
    )
    halves = (F.contains(line, F.lit("\\ud")) | F.contains(line, F.lit("\\uD"))) & line.rlike(_PAIRS)
    wrong = F.col("__bad") | (F.col("__count") != 1) | F.col("__object").isNull()
    verdict = F.when(_blank(), BLANK).when(~valid | F.coalesce(wrong, F.lit(True)) | halves, BAD).otherwise(GOOD)
    shaped = F.is_variant_null(F.try_parse_json(line)).isNotNull() & (F.col("__count") == 1)
    unlike = F.when(
        shaped & F.ltrim(line).startswith("{"), F.lit("a value is of another structure than the mapping reads")
    )
    reason = F.coalesce(
        why,
        F.when(halves, F.lit("half a surrogate pair (\\uD800 to \\uDFFF alone) is no character")),
        F.when(wrong, F.coalesce(unlike, F.lit("it is not one JSON object"))),
    )

    def find(route: Route, element: Any) -> Any:
        return follow(route, element, F.col("__object"), schema, mapping)

    return Scan(frame, find, verdict, reason, keep)


def follow(route: Route, element: Any, record: Any, schema: Any, mapping: IngestMapping) -> Any:
    """The Column and type at the end of a route; None if the schema has nothing there."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    column, given = record, schema
    if route.start:
        assert mapping.explode is not None
        each, index = element
        outer = follow(mapping.explode.route, None, record, schema, mapping)
        if route.start == "index":
            return index, T.IntegerType()
        if isinstance(outer[1], T.MapType):
            column, given = (
                (each["key"], T.StringType()) if route.start == "key" else (each["value"], outer[1].valueType)
            )
        else:
            column, given = each, outer[1].elementType
    for step in route.steps:
        if isinstance(step, int):
            if not isinstance(given, T.ArrayType):
                return None
            column, given = F.get(column, F.lit(step)), given.elementType
        elif isinstance(given, T.StructType) and step in given.names:
            column, given = column.getField(step), given[step].dataType
        else:
            return None
    return column, given


def json_schema(mapping: IngestMapping) -> Any:
    """What is read of each object: every route, with text at its end."""
    tree: dict[Step, Any] = {}
    inner: dict[Step, Any] = {}
    for route, kind in routes(mapping):
        if route.start in ("", "value"):
            _plant(tree if not route.start else inner, route, raw_type(kind))
    if mapping.explode is not None:
        from pyspark.sql import types as T

        element = _grown(inner) if inner else T.StringType()
        entries = mapping.explode.kind == "entries"
        made = T.MapType(T.StringType(), element) if entries else T.ArrayType(element)
        _plant(tree, mapping.explode.route, made)
    return _grown(tree)


def _plant(tree: dict[Step, Any], route: Route, leaf: Any) -> None:
    from headwater.errors import ConfigError, ConfigProblem

    for step in route.steps:
        tree = tree.setdefault(step, {})
    clash = ConfigProblem(f"mapping: from {route}", "a place that is read in one way", "the same place in another")
    if tree and tree.get("") != leaf:
        raise ConfigError([clash])
    tree[""] = leaf


def _grown(tree: dict[Step, Any]) -> Any:
    from pyspark.sql import types as T

    from headwater.errors import ConfigError, ConfigProblem

    if "" in tree:
        if len(tree) > 1:
            found = f"a value, and {', '.join(str(step) for step in tree if step != '')} in it"
            raise ConfigError([ConfigProblem("mapping: from", "a place that is read in one way", found)])
        return tree[""]
    if any(isinstance(step, int) for step in tree):
        parts = [_grown(each) for each in tree.values()]
        return T.ArrayType(reduce(_merged, parts))
    return T.StructType([T.StructField(str(name), _grown(each)) for name, each in tree.items()])


def _merged(a: Any, b: Any) -> Any:
    from pyspark.sql import types as T

    if isinstance(a, T.StructType) and isinstance(b, T.StructType):
        fields = {f.name: f for f in a.fields}
        for f in b.fields:
            known = fields.get(f.name)
            fields[f.name] = T.StructField(f.name, _merged(known.dataType, f.dataType)) if known else f
        return T.StructType(list(fields.values()))
    return a


# ── Parquet ──


def _parquet(spark: Any, mapping: IngestMapping, files: list[Input], places: dict[str, int], details: bool) -> Scan:
    """Rows of Parquet files, with their places if these are to be told."""
    from pyspark.sql import functions as F

    frame = in_micros(spark.read.parquet(*[each.uri for each in files]), pq.read_schema(files[0].spark))
    schema = frame.schema
    names = [F.col(f"`{name}`") for name in frame.columns if name != "_metadata"]
    row = [F.col("_metadata.row_index").alias("__row_index")] if details else []
    frame = _position(frame, spark, mapping, files, places, details, [F.struct(*names).alias("__object"), *row])
    keep: tuple[str, ...] = (AT,)
    if details:
        keep = (AT, FILE, BLOCK, ROW, RAW, BYTES)
        frame = frame.select(
            AT,
            FILE,
            F.lit(0).cast("bigint").alias(BLOCK),
            F.col("__row_index").alias(ROW),
            "__object",
            F.to_json("__object").alias(RAW),
            F.lit(None).cast("binary").alias(BYTES),
        )

    def find(route: Route, element: Any) -> Any:
        return follow(route, element, F.col("__object"), schema, mapping)

    return Scan(frame, find, F.lit(GOOD), F.lit(None).cast("string"), keep)


def in_micros(frame: Any, arrow: pa.Schema) -> Any:
    """The frame with times where Spark has nanoseconds as whole numbers; what is beyond microseconds is cut off."""
    from pyspark.sql import functions as F

    if not any(_has_nanos(each.type) for each in arrow):
        return frame
    made = [
        _micros(F.col(f"`{name}`"), arrow.field(name).type).alias(name) if _has_nanos(arrow.field(name).type) else
        F.col(f"`{name}`")
        for name in frame.columns
    ]  # fmt: skip
    return frame.select(*made, "_metadata")


def _has_nanos(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanos(kind.field(i).type) for i in range(kind.num_fields))


def _micros(column: Any, kind: pa.DataType) -> Any:
    from pyspark.sql import functions as F

    if not _has_nanos(kind):
        return column
    if pa.types.is_timestamp(kind):
        nanos = column.cast("bigint")
        made = F.timestamp_micros(
            ((nanos - F.pmod(nanos, F.lit(1000))) / F.lit(1000).cast("decimal(4,0)")).cast("bigint")
        )
        return made if kind.tz else made.cast("timestamp_ntz")
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [_micros(column.getField(each.name), each.type).alias(each.name) for each in fields]
        return F.when(column.isNotNull(), F.struct(*parts))
    if pa.types.is_map(kind):
        return F.transform_values(column, lambda _, each: _micros(each, kind.item_type))
    return F.transform(column, lambda each: _micros(each, kind.value_type))


__all__: list[str] = ["AT", "BLOCK", "BYTES", "FILE", "MASK", "RAW", "ROW", "ROWS", "groups", "pieces", "scan"]
