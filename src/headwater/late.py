"""Large packages that are loaded when they are first used, and not with Headwater itself.

    from headwater.late import np, pa

`import headwater` takes a moment because nothing heavy comes with it: numpy is loaded with the first interest that is
matched, LLVM with the first machine code, Arrow with the first batch or log. Each name here stands for a module; what
is first asked of it loads it, in whichever thread that happens, and from then on it is that module in all but name: to
ask it costs what a module costs. Of a package that is not installed, the first use says what to install.

A module of Headwater takes these packages from here, and from nowhere else (`tools/check_imports.py` sees to it);
nothing may be asked of them while it is being imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headwater.errors import MissingExtra
from headwater.extras import extra_of, how_to_install


class _Late(ModuleType):
    """A module that is not loaded yet."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # whoever looks at a value's nature does not use it
            raise AttributeError(f"module {self.__name__!r} is not loaded, and so has no attribute {name!r}")
        module = _load(self.__name__)
        # First what is in it, then what it is: another thread may be here as well, and finds all that it asks for.
        self.__dict__.update(module.__dict__)
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(module, name)

    def __reduce__(self) -> Any:
        return import_module, (self.__name__,)  # a function that travels to a worker takes the module itself along

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}, not loaded yet>"


def _load(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name)
        if extra is None:
            raise
        package = (error.name or name).partition(".")[0]
        raise MissingExtra(f"this needs {package}, which is not installed: {how_to_install(extra)}", extra) from None


def loaded(value: object, package: str, name: str) -> bool:
    """Whether a value is an instance of a class of a package; asks without loading it."""
    module = sys.modules.get(package)
    kind = None if module is None else getattr(module, name, None)
    return kind is not None and isinstance(value, kind)


if TYPE_CHECKING:
    import asyncio

    import llvmlite.binding as llvm
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
else:
    asyncio = _Late("asyncio")
    llvm = _Late("llvmlite.binding")
    np = _Late("numpy")
    pa = _Late("pyarrow")
    pc = _Late("pyarrow.compute")
    ds = _Late("pyarrow.dataset")
    pq = _Late("pyarrow.parquet")


__all__ = ["asyncio", "ds", "llvm", "loaded", "np", "pa", "pc", "pq"]
