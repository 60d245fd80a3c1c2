"""A process that has loaded all that a node needs, from which others are forked: milliseconds instead of seconds each.

As a program it reads requests from the socket that is its standard input: each says what the new process shall run and
where, brings its three streams, and is answered with its number. It ends with its parent.

    with Popen([sys.executable, "-c", PROGRAM, "argument"], stdout=subprocess.PIPE) as process: ...
    run([sys.executable, "-m", "headwater.cli", "node"], capture_output=True)

are `subprocess.Popen` and `subprocess.run` but for how the process begins. What is to be shown of a process that loads
everything itself, or of its environment, is started by `subprocess`. A program that is a file has the Python processes
that it starts itself, by `subprocess`, forked as well.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import struct
import subprocess
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import headwater

_ROOT = Path(__file__).parents[2]
_PID = struct.Struct("i")
_REQUEST = 1 << 16  # bytes that a request may have
_ENDING = 60.0  # seconds in which a thread that is about to end has ended
_COLLECTION = 10_000, 20, 20  # new objects after which those are looked through; how often, before older ones are
_SUBREAPER = 36  # Linux's PR_SET_CHILD_SUBREAPER
_LOCK = threading.Lock()
AVAILABLE = sys.platform == "linux"


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a process which is to find the same headwater and these tests."""
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([str(Path(headwater.__file__).parents[1]), str(_ROOT), *given])
    return {**os.environ, **(more or {}), "PYTHONPATH": path}


class Popen(subprocess.Popen[Any]):
    """A Python program in a process that is forked, where that can be; it is a child of this one like any other."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        if not AVAILABLE:
            getattr(super(), "_execute_child")(args, *more)  # noqa: B009
            return
        cwd, env, streams = more[4], more[5], more[9:15]
        assert args[0] == sys.executable and env is None, "only a Python, with the environment that this one has"
        stdin, _, _, stdout, _, stderr = streams
        given = [number if each == -1 else each for number, each in enumerate((stdin, stdout, stderr))]
        self.pid = _nursery().fork(args[1:], os.fspath(cwd or Path.cwd()), *given)
        self._child_created = True
        getattr(self, "_close_pipe_fds")(*streams)  # noqa: B009


class Subprocess(Popen):
    """What a forked program finds as `subprocess.Popen`."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        if AVAILABLE and (isinstance(args, str) or args[0] != sys.executable or more[5] is not None):
            getattr(super(Popen, self), "_execute_child")(args, *more)  # noqa: B009
        else:
            super()._execute_child(args, *more)


def run(
    command: Sequence[str], *, given: str | None = None, timeout: float | None = None, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """Such a process from its beginning to its end."""
    if given is not None:
        more["stdin"] = subprocess.PIPE
    if more.pop("capture_output", False):
        more["stdout"] = more["stderr"] = subprocess.PIPE
    with Popen(command, **more) as process:
        try:
            out, errors = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(command, process.returncode, out, errors)
    if check:
        ended.check_returncode()
    return ended


class Nursery:
    """That process, as its parent has it."""

    def __init__(self, requests: socket.socket, pid: int) -> None:
        self._socket, self._pid = requests, pid

    @classmethod
    def started(cls) -> Nursery:
        ours, theirs = _sockets()
        with theirs:
            command = [sys.executable, "-m", "tests.federation.nursery"]
            process = subprocess.Popen(command, stdin=theirs, cwd=_ROOT, env=environment())
        process.returncode = 0  # it is waited for here
        return cls(ours, process.pid)

    @classmethod
    def forked(cls) -> Nursery:
        ours, theirs = _sockets()
        pid = os.fork()
        if not pid:
            ours.close()
            os.environ.update(environment())
            os.dup2(theirs.fileno(), 0)
            theirs.close()
            serve()
            os._exit(0)
        theirs.close()
        return cls(ours, pid)

    def fork(self, command: Sequence[str], folder: str, *streams: int) -> int:
        """The number of a new process, whose parent is this one: it has no other when it has begun."""
        request = json.dumps([folder, *command]).encode()
        assert len(request) < _REQUEST
        with _LOCK, _adopting():
            socket.send_fds(self._socket, [request], streams)
            answer = self._socket.recv(_PID.size)
        assert len(answer) == _PID.size, "the process from which others are forked has ended"
        pid: int = _PID.unpack(answer)[0]
        return pid

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._pid, 0)


def _sockets() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class _adopting:
    """Whatever of this process's descendants has no parent meanwhile becomes its child."""

    def __enter__(self) -> None:
        self._set(1)

    def __exit__(self, *_: object) -> None:
        self._set(0)

    def _set(self, value: int) -> None:
        done = ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, value, 0, 0, 0)
        assert done == 0, os.strerror(ctypes.get_errno())


_MADE: dict[int, Nursery] = {}  # by process


def _nursery() -> Nursery:
    with _LOCK:
        made = _MADE.get(os.getpid())
        if made is None:
            made = _MADE[os.getpid()] = Nursery.started()
            atexit.register(made.close)
        return made


def prepare() -> None:
    """In a process that has loaded everything (`load`) and has no thread yet: what it wants forked later on is forked
    from one that is as it is now."""
    made = _MADE[os.getpid()] = Nursery.forked()
    atexit.register(made.close)


# ── the program ──


def main() -> None:
    load()
    serve()


def load() -> None:
    """Before anything forks: all that is loaded late elsewhere, which then stays where it is in memory."""
    from headwater.match.kernels import few, library
    from headwater.native.kernels import runtime
    from tests.federation import worker

    for name in ("zenoh", "headwater.cli", "headwater_studies.fleet.worker"):
        importlib.import_module(name)
    for room in ("channel", "federation", "match", "native", "patterns", "store"):
        package = importlib.import_module(f"headwater.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for machine_code in (runtime.imports, library.code, few.code):
        machine_code()
    _warm(worker.Count(maker="nursery", n=3), worker.Seen(badge=3, level=0.5, room="nursery"))
    settle()


def settle() -> None:
    """What there is now stays, and is not looked through again for what nobody has any more; nor is all else as often
    as in a program that runs on and on. The same holds in processes that are forked."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTION)


def serve() -> None:
    """Fork what is asked for, until nobody can ask any more."""
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            request, streams, _, _ = socket.recv_fds(requests, _REQUEST, 3)
            if len(streams) != 3:
                return
            pid = _fork()
            if not pid:
                requests.close()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                _run(*json.loads(request))
            for stream in streams:
                os.close(stream)
            requests.send(_PID.pack(pid))


def _fork() -> int:
    """The number of a process that is nobody's child here: one in between has made it, and has ended. 0 in itself."""
    ours, theirs = os.pipe()
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        found: int = _PID.unpack(os.read(ours, _PID.size))[0]
    else:
        found = os.fork()
        if found:
            os.write(theirs, _PID.pack(found))
            os._exit(0)
    os.close(ours)
    os.close(theirs)
    return found


def _run(folder: str, *command: str) -> NoReturn:
    """As `python` would; but a module that is loaded already is not loaded twice."""
    code = 1
    try:
        os.chdir(folder)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        _execute(list(command))
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        end(code)


def end(code: int) -> NoReturn:
    """As at the end of any program, but for what the one that was forked has yet to do."""
    with suppress(BaseException):
        getattr(threading, "_shutdown")()  # noqa: B009
        getattr(atexit, "_run_exitfuncs")()  # noqa: B009
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _execute(command: list[str]) -> None:
    from tests.federation import worker

    match command:
        case ["-m", module, *_]:
            sys.argv = command[1:]
            if command == ["-m", worker.__name__]:
                worker.serve(worker.Worker())
            else:
                sys.modules.pop(module, None)
                runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", program, *rest]:
            sys.argv = ["-c", *rest]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), main.__dict__)
        case [script, *_] if script.endswith(".py"):
            sys.argv, sys.path = command, [str(Path(script).resolve().parent), *sys.path]
            warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
            prepare()
            setattr(subprocess, "Popen", Subprocess)  # noqa: B010
            runpy.run_path(script, run_name="__main__")
        case _:
            raise SystemExit(f"expected -m and a module, -c and a program, or a file, found {command}")


def _warm(*events: headwater.Event) -> None:
    """Whatever a node makes when it is first used (machine code that is the same for all, parsers) is made here once.
    No thread may be left of it, whatever it was at: a fork has none but its own."""
    with headwater.Node("nursery") as node:
        for number, event in enumerate(events):
            channel = node.channel(f"nursery.n{number}", type(event))
            channel.subscribe(lambda _: None, "level < 30")
            channel.source("nursery").publish(event)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_ENDING)
            assert not thread.is_alive(), thread


if __name__ == "__main__":
    main()
