"""Registries of components: folders that mirror those of Azure ML, by name.

One JSON file of the user names them: `$WINDROW_REGISTRIES`, else `windrow/registries.json` in `$XDG_CONFIG_HOME` or
`~/.config`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from windrow.errors import UsageError


class Registries:
    """The registries of a user: absolute folders by name. The file is read once, and each change is written at once."""

    def __init__(self) -> None:
        """Raises UsageError if the file cannot be read, or is not one of registries."""
        self.file = _file()
        self.folders: dict[str, str] = {}
        try:
            found = json.loads(self.file.read_bytes())
            self.folders = {str(name): os.fspath(folder) for name, folder in found.items()}
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UsageError(f"The file of registries {self.file} cannot be read: {error.strerror}.") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"The file of registries {self.file} is damaged ({error}). Repair it, or delete it and add the "
                "registries again: windrow registry add NAME FOLDER."
            ) from error

    def add(self, name: str, folder: str) -> None:
        """Name a folder. Raises UsageError if there is none, or the file cannot be written."""
        if not name or "/" in name:
            raise UsageError(f"{name!r} cannot be the name of a registry, which stands in azureml://registries/NAME/….")
        path = Path(folder).absolute()
        if not path.is_dir():
            raise UsageError(f"The registry {name} is not added: {path} is not a folder.")
        self.folders[name] = str(path)
        self._write()

    def remove(self, name: str) -> None:
        """Forget a name; its folder stays. Raises UsageError."""
        if name not in self.folders:
            known = ", ".join(sorted(self.folders)) or "there is none"
            raise UsageError(f"There is no registry {name!r}. Known: {known}.")
        del self.folders[name]
        self._write()

    def _write(self) -> None:
        partial = self.file.with_name(f".{self.file.name}-{os.urandom(8).hex()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            try:
                partial.write_text(json.dumps(dict(sorted(self.folders.items())), indent=2), "utf-8")
                partial.replace(self.file)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"The file of registries {self.file} cannot be written: {error.strerror}.") from error


def _file() -> Path:
    if named := os.environ.get("WINDROW_REGISTRIES"):
        return Path(named).absolute()
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path("~/.config").expanduser()) / "windrow" / "registries.json"
