"""Runs below a script's run: parts of it, each with a name that stands before whatever it keeps
(docs/reference/azure-ml/parallel-job.md#metrics).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from .model import Model
from .run import Experiment, Run


class ChildRun(Run):
    """A part of a run, such as one of many models: `child.log("loss", 0.1)` is `run.log("NAME/loss", 0.1)`, and so are
    its tags, properties and files.
    """

    def __init__(self, parent: Run, name: str) -> None:
        """Raises ValueError for a name that cannot stand before others."""
        if not name or name != name.strip("/") or "\n" in name or "\r" in name:
            raise ValueError(
                f"The name of a child run is one line of text that neither begins nor ends with /: {name!r}"
            )
        self.name = self.display_name = name
        self.parent: Run = parent
        self.id = f"{parent.id}/{name}"
        self.experiment: Experiment = parent.experiment
        self._before = f"{name}/"
        self._status = "Running"

    def get_status(self) -> str:
        """Running until the script says that it has ended."""
        return self._status

    status = property(get_status)

    def complete(self) -> None:
        """The part has ended: nothing else follows from it."""
        self._status = "Completed"

    def fail(self, error_details: Any = None, error_code: Optional[str] = None, **more: Any) -> None:
        """The part has failed. That does not fail the step, but what the error was is a property of it."""
        self._status = "Failed"
        if error_details is not None:
            self.add_properties({"error": str(error_details)})

    def cancel(self) -> None:
        """The part was left. The step goes on."""
        self._status = "Canceled"

    def __exit__(self, *exception: object) -> None:
        """The part has ended, or has failed."""
        if exception[0] is None:
            self.complete()
        else:
            self.fail(exception[1])

    def _keep(self, name: str, kind: str, value: Any) -> None:
        self.parent._keep(self._before + name if isinstance(name, str) and name else name, kind, value)

    def _upload(self, files: List[Tuple[str, str]]) -> None:
        self.parent._upload([(self._before + name, path) for name, path in files])

    def get_metrics(
        self, name: Optional[str] = None, recursive: bool = False, *more: Any, **others: Any
    ) -> Dict[str, Any]:
        """What this part has logged so far, as that of a run."""
        found = self._own(self.parent.get_metrics())
        found = {key: value for key, value in found.items() if name in (None, key)}
        return {self.id: found} if recursive else found

    def get_tags(self) -> Dict[str, Any]:
        """The tags of this part."""
        return self._own(self.parent.get_tags())

    def get_properties(self) -> Dict[str, Any]:
        """The properties of this part."""
        return self._own(self.parent.get_properties())

    tags = property(get_tags)
    properties = property(get_properties)

    def get_file_names(self) -> List[str]:
        """The names of the files that were uploaded."""
        return list(self._own(dict.fromkeys(self.parent.get_file_names())))

    def download_file(self, name: str, output_file_path: Optional[str] = None, *more: Any, **others: Any) -> None:
        """Writes a file of this part to a path or into a folder. Raises FileNotFoundError."""
        self.parent.download_file(self._before + name, output_file_path, *more, **others)

    def register_model(
        self,
        model_name: str,
        model_path: Optional[str] = None,
        tags: Optional[Mapping[str, Any]] = None,
        properties: Optional[Mapping[str, Any]] = None,
        description: Optional[str] = None,
        **more: Any,
    ) -> Model:
        """Registers a file or folder of this part as a model. What it has not uploaded is looked for among the files
        of the run, then on the node. Raises FileNotFoundError.
        """
        wanted = (model_path or model_name).rstrip("/")
        is_own = any(f"{name}/".startswith(f"{wanted}/") for name in self.get_file_names())
        return self.parent.register_model(
            model_name, self._before + wanted if is_own else wanted, tags, properties, description, **more
        )

    def _own(self, found: Mapping[str, Any]) -> Dict[str, Any]:
        return {name[len(self._before) :]: value for name, value in found.items() if name.startswith(self._before)}
