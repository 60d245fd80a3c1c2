"""Heavy packages are loaded by their first use, in whichever thread that is."""

from __future__ import annotations

import inspect
import pickle
import sys

import pytest

from headwater.errors import MissingExtra
from headwater.late import _Late, loaded, np
from tests.base import run


def test_many_threads_may_be_the_first() -> None:
    program = """
    import json, threading
    from headwater.late import np, pa, pc

    together, found = threading.Barrier(16), []

    def use(number):
        together.wait()
        for _ in range(200):
            made = pc.sum(pa.array(np.arange(number + 1))).as_py()
        found.append((number, made))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    import numpy, pyarrow
    assert np.ndarray is numpy.ndarray and pa.RecordBatch is pyarrow.RecordBatch
    print(json.dumps(sorted(found)))
    """
    assert run(program) == [[number, number * (number + 1) // 2] for number in range(16)]


def test_whoever_looks_at_it_does_not_load_it() -> None:
    module = _Late("colorsys")
    sys.modules.pop("colorsys", None)
    assert repr(module) == "<module 'colorsys', not loaded yet>"
    assert inspect.unwrap(module) is module and not hasattr(module, "__path__")  # type: ignore[arg-type]
    assert "colorsys" not in sys.modules
    assert module.rgb_to_hsv(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
    assert type(module) is type(sys) and "rgb_to_hsv" in vars(module)  # from now on it costs what a module costs


def test_one_that_travels_is_the_module() -> None:
    import colorsys

    assert pickle.loads(pickle.dumps(_Late("colorsys"))) is colorsys


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.compute"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"needs pyarrow, .*: pip install 'headwater\[arrow\]'$") as caught:
        _ = _Late("pyarrow.compute").sum
    assert caught.value.extra == "arrow"
    with pytest.raises(ModuleNotFoundError):
        _ = _Late("headwater_has_no_such_package").name


def test_a_value_is_looked_at_without_loading_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(np.zeros(1), "numpy", "ndarray")
    assert not loaded(7, "numpy", "ndarray") and not loaded(7, "numpy", "no_such_class")
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    assert not loaded(7, "pyarrow", "Schema") and "pyarrow" not in sys.modules
