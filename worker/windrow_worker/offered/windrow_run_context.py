"""Lets `Run.get_context()` of an installed azureml-core give the run of the step, in place of its offline run: that one
keeps nothing, and has no parent, experiment or inputs (docs/reference/azure-ml/parallel-job.md#metrics).

The other names of the package stay its own. A process with a run of Azure ML keeps that.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Optional, Sequence

_PATCHED = "azureml.core.run"
_OURS = "windrow_offered"
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "azureml", "core")


def install() -> None:
    """Has the module patched when it is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """The module as others find it, with another loader. None for all other modules."""
        if name != _PATCHED:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or type(spec.loader) is not SourceFileLoader or os.path.dirname(spec.loader.path) == _FOLDER:
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        """Executes the module, and replaces what gives the run."""
        super().exec_module(module)
        run, offline = getattr(module, "Run", None), getattr(module, "_OfflineRun", None)
        if run is None or offline is None:
            return
        given = run.get_context.__func__

        def get_context(
            cls: Any, /, allow_offline: bool = True, used_for_context_manager: bool = False, **more: Any
        ) -> Any:
            """The run of Azure ML, if the process has one; else that of the step."""
            found = given(cls, True, used_for_context_manager, **more)
            return _step_run() if isinstance(found, offline) else found

        run.get_context = classmethod(get_context)


def _step_run() -> Any:
    if _OURS not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location(
            _OURS, os.path.join(_FOLDER, "__init__.py"), submodule_search_locations=[_FOLDER]
        )
        assert spec is not None and spec.loader is not None
        sys.modules[_OURS] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_OURS])
    return sys.modules[_OURS].Run.get_context()
