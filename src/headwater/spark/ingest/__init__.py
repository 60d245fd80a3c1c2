"""Ingest: files of records, mapped onto an event type, into a log.

IngestMapping.load(path), IngestMapping.of(format=..., ...)    how records become events
ingest(spark, mapping, inputs, log) -> IngestReport            every record in the log or in the quarantine
split(frame, mapping) -> (events, quarantine)                  the same on a DataFrame, for streams and pipelines
infer(samples) -> Proposal                                     an event type and a mapping, from a sample
"""

from headwater.spark.ingest.frames import split
from headwater.spark.ingest.infer import Proposal, infer
from headwater.spark.ingest.ingest import ingest
from headwater.spark.ingest.mapping import IngestMapping
from headwater.spark.ingest.quarantine import read_quarantine
from headwater.spark.ingest.report import FileNote, IngestReport

__all__ = ["FileNote", "IngestMapping", "IngestReport", "Proposal", "infer", "ingest", "read_quarantine", "split"]
