"""Interests as machine code: on one record, on a batch of Arrow columns, and at once through a table."""

from headwater.native.batch import BatchProgram, BatchResult, Counts, compile_batch
from headwater.native.program import Native, asm, compile_async, in_background, llvm_ir
from headwater.native.record import RecordProgram, Result, compile_record
from headwater.native.table import TableProgram, table_for

__all__ = [
    "BatchProgram",
    "BatchResult",
    "Counts",
    "Native",
    "RecordProgram",
    "Result",
    "TableProgram",
    "asm",
    "compile_async",
    "compile_batch",
    "compile_record",
    "in_background",
    "llvm_ir",
    "table_for",
]
