"""Makes the modules that notebooks import, such as `windrow.ml.v1.core.compute`, from the table of names."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_PREFIX = "windrow.ml.v1."


def install() -> None:
    """Let `import` find the modules of the table. They come after files, and files are found without the table."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        from windrow.ml.v1.names import MODULES

        name = fullname.removeprefix(_PREFIX)
        if name not in MODULES:
            return None
        is_package = any(other.startswith(f"{name}.") for other in MODULES)
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=is_package)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Let Python make the module as any other."""

    def exec_module(self, module: ModuleType) -> None:
        from windrow.ml.v1.absent import refusing
        from windrow.ml.v1.names import MODULES

        name = module.__name__.removeprefix(_PREFIX)
        module.__doc__ = f"As `azureml.{name}`."
        module.__dict__.update(MODULES[name], __all__=sorted(MODULES[name]), __getattr__=refusing(module.__name__))
