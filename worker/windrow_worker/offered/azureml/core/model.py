"""`azureml.core.Model`, offered where the real package is not installed: of its methods, only `get_model_path`.

It looks where the real one does in a script: below the folder that $AML_APP_ROOT names, or the working folder.
"""

from __future__ import annotations

import os

from .run import absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

__all__ = ["Model"]

_FOLDER = "azureml-models"


_INSTEAD = {
    "register": "write the model into an output of the step, and register it: windrow model create",
    "list": "there is no workspace. Give the step its models as inputs",
}


class _ModelType(type):
    def __getattr__(cls, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        why = _INSTEAD.get(name, "it offers only Model.get_model_path. Install azureml-core in the Python of the step")
        raise AttributeError(f"Model.{name} is not there in Windrow: {why}.")


class Model(metaclass=_ModelType):
    """Finds registered models by name."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Raises RuntimeError."""
        raise RuntimeError(
            "A script cannot open the workspace's models. Model.get_model_path(name) gives the path of one, or give it "
            "to the step as an input"
        )

    @staticmethod
    def get_model_path(model_name: str, version: Optional[int] = None, _workspace: Any = None) -> str:
        """The path of a model; without `version`, of the newest. Raises FileNotFoundError."""
        root = os.environ.get("AML_APP_ROOT") or os.getcwd()
        folder = os.path.join(root, _FOLDER, model_name)
        numbers = sorted((int(name) for name in _names(folder) if name.isdigit()), reverse=True)
        wanted = [number for number in numbers if version is None or number == int(version)]
        for number in wanted[:1]:
            below = os.path.join(folder, str(number))
            there = _names(below)
            if len(there) == 1:
                return os.path.join(below, there[0])
        beside = os.path.join(root, model_name)
        if version is None and os.path.exists(beside):
            return beside
        raise FileNotFoundError(
            f"There is no model {model_name!r}{'' if version is None else f' of version {version}'} for this step. "
            "Register it in the notebook that submits the pipeline (Model.register), or give it to the step as an "
            f"input. The script looks in {folder}"
        )


def _names(folder: str) -> list:  # type: ignore[type-arg]  # Python 3.8 has no list[str]
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def __getattr__(name: str) -> NoReturn:
    """Raises ModuleNotFoundError, as the import of a package that is not installed does."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(f"{__name__}.{name}")
