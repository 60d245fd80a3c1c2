"""LLVM, once per process: the target machine, the passes, and loaded machine code that goes when it is let go.

This is the only place that knows llvmlite. Code is compiled to an object image first, so that what was loaded can be
shown (`disassembly` through `assembly`) and so that loading is one short step.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.late import llvm

# For code without loops, for records with loops, and for batches: what each gains from is worth its time, and no more.
Passes = Literal["straight", "loops", "all"]

_lock = threading.RLock()
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: parsing, optimising, emitting, linking."""

    parse: float
    optimise: float
    emit: float
    link: float

    @property
    def total(self) -> float:
        return self.parse + self.optimise + self.emit + self.link


@dataclass(frozen=True)
class Code:
    """Loaded machine code: keep it as long as an address of it may be called."""

    addresses: dict[str, int]
    source: str
    size: int
    timing: Timing
    _tracker: Any = field(repr=False, compare=False)

    def __getitem__(self, name: str) -> int:
        return self.addresses[name]


class _Engine:
    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._machine, self._quick = self._target(2), self._target(1)
        # JITLink puts all sections of an object into one piece of memory. The other linker maps each by itself, where
        # there is room: if that is more than 2 GB apart, which is as far as code reaches, it ends the process.
        self.jit = llvm.create_lljit_compiler(self._target(2), use_jit_link=True)
        self.triple = llvm.get_process_triple()

    def machine(self, passes: Passes) -> Any:
        """What emits code: quickly for code without loops, which comes out the same."""
        return self._quick if passes == "straight" else self._machine

    @staticmethod
    def _target(level: int) -> Any:
        target = llvm.Target.from_triple(llvm.get_process_triple())
        features = llvm.get_host_cpu_features().flatten()
        if llvm.get_process_triple().startswith("x86_64"):
            features += ",+prefer-no-gather"  # texts are compared three times faster one by one
        return target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=level, reloc="pic", codemodel="small", jit=True
        )

    def optimise(self, source: str, passes: Passes) -> Any:
        module = llvm.parse_assembly(f'target triple = "{self.triple}"\n{source}')
        module.data_layout = str(self.machine(passes).target_data)
        started = time.perf_counter()
        # A builder keeps the callbacks of every run: used again and again, it would take longer each time.
        builder = llvm.create_pass_builder(self.machine(passes), _options(passes))
        straight = passes == "straight"
        manager = _straight() if straight else builder.getModulePassManager()
        try:
            for unit in [f for f in module.functions if not f.is_declaration] if straight else [module]:
                manager.run(unit, builder)
        finally:
            manager.close()
            builder.close()
        return module, started


def _straight() -> Any:
    """A quarter of the time that all passes take, for nearly the same code where there are no loops."""
    manager = llvm.create_new_function_pass_manager()
    manager.add_sroa_pass()
    manager.add_simplify_cfg_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    return manager


def _options(passes: Passes) -> Any:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_interleaving = True
    options.loop_unrolling = passes == "all"  # a third of the time, for sums that wait for each other anyway
    return options


_engine: _Engine | None = None


def engine() -> _Engine:
    """LLVM, made ready when it is first needed."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = _Engine()
        return _engine


def cpu() -> str:
    """What machine code is made for."""
    return str(llvm.get_host_cpu_name())


def compile(source: str, exports: tuple[str, ...], imports: dict[str, int], passes: Passes = "all") -> Code:
    """Optimise and load LLVM assembly. Imported names resolve to the given addresses and to nothing else."""
    with _lock:
        it = engine()
        t0 = time.perf_counter()
        module, t1 = it.optimise(source, passes)
        with module:  # all modules share one context, so this one must be gone before the lock is
            t2 = time.perf_counter()
            image = it.machine(passes).emit_object(module)
            t3 = time.perf_counter()
        builder = llvm.JITLibraryBuilder().add_object_img(image)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        tracker = builder.link(it.jit, f"hw{next(_numbers)}")
        t4 = time.perf_counter()
    timing = Timing(t1 - t0, t2 - t1, t3 - t2, t4 - t3)
    return Code({name: tracker[name] for name in exports}, source, len(image), timing, tracker)


def optimised(source: str, passes: Passes = "all") -> str:
    """The LLVM assembly after the passes."""
    with _lock:
        module, _ = engine().optimise(source, passes)
        with module:
            return str(module)


def assembly(source: str, passes: Passes = "all") -> str:
    """The machine code in the machine's own assembly."""
    with _lock:
        it = engine()
        module, _ = it.optimise(source, passes)
        with module:
            return str(it.machine(passes).emit_assembly(module))


def libc(names: tuple[str, ...]) -> dict[str, int]:
    """Addresses of C functions of this process."""
    process = ctypes.CDLL(None)
    return {name: ctypes.cast(getattr(process, name), ctypes.c_void_p).value or 0 for name in names}


def _before_fork() -> None:
    """Wait until no thread is inside LLVM, whose own locks and data the child would find half-way otherwise. Code that
    is let go enters it too, by llvmlite's lock alone: which is taken after ours, as in `compile`."""
    _lock.acquire()
    if _engine is not None:
        llvm.ffi.lib._lock.__enter__()


def _after_fork() -> None:
    if _engine is not None:
        llvm.ffi.lib._lock.__exit__(None, None, None)
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
