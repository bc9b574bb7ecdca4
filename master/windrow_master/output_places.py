"""Where the outputs of steps are, and the only way to open them: scripts can write there, and would lay links.

The rule (docs/explanation/trust.md): links in the path that a job gives an output are followed once, when its step
begins, and what they lead to is remembered with the step. From then on, no link is followed there, neither on the way
to an output nor below it; and what is opened must be in the datastores of the master. Links in the paths of the
datastores themselves are the operator's, and are followed whenever a master starts. In the default folder of outputs,
no link is followed at all.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from windrow.common.beneath import Folder, Refused
from windrow.storage.urls import is_remote

from windrow_master.kept_folders import KeptFolders
from windrow_master.roots import Roots
from windrow_master.step_paths import StepPaths


class OutsideRoots(Refused):
    """A folder is not in the datastores of this master."""

    def __init__(self, path: str, roots: Roots) -> None:
        super().__init__(
            errno.EPERM,
            f"{path} is outside the datastores of this master ({roots}). To use it, start the master with "
            "--datastore NAME=PATH for a folder that contains it",
        )


class OutputPlaces:
    """Opens folders of outputs. Methods block on the disk; any thread may call them."""

    def __init__(
        self, default: Path, datastores: Iterable[str], roots: Roots | None, kept: KeptFolders | None = None
    ) -> None:
        """`default`: the folder of outputs without a path. `datastores`: their places. `roots`: where outputs must be;
        anywhere if None. `kept`: where none is.
        """
        self.default = default
        self.kept = kept or KeptFolders(())
        self._roots = roots
        datastores = list(datastores)
        self.confining = [] if roots is None else [path for path in (str(default), *datastores) if not is_remote(path)]
        """The folders that inputs and outputs of confined scripts are in, as nodes see them; none: anywhere."""
        folders = [os.path.normpath(place) for place in (str(default), *datastores) if not is_remote(place)]
        self._anchors = {folder: os.path.realpath(folder) for folder in sorted(folders, key=len, reverse=True)}

    def refuse_kept(self, path: str, paths: StepPaths) -> str:
        """Why an output of a step is in a folder that the master keeps for all jobs, or holds one; "" if neither."""
        return self.kept.refuse(self._real(path, paths))

    def make(self, path: Path, paths: StepPaths) -> Folder:
        """Make a folder for an output, and its parents, durably; return it, open. Raises as `folder`."""
        real = Path(self._real(str(path), paths))
        if self._roots is not None and not self._roots.hold_real(str(real)):
            raise OutsideRoots(str(real), self._roots)
        missing: list[str] = []
        while True:
            try:
                folder = Folder.open(real)
                break
            except FileNotFoundError:
                missing.append(real.name)
                real = real.parent
        while missing:
            name = missing.pop()
            with folder:
                folder.make(name)
                folder.sync()
                folder = folder.folder(name)
        return self._allowed(folder)

    def remember(self, paths: StepPaths) -> StepPaths:
        """The same, with what the links in the paths of the outputs lead to now. Call it when the step begins."""
        found = {}
        for path in [path for path in paths.outputs.values() if not is_remote(path)]:
            for place in (path, str(Path(path).parent)):
                if _is_below(place, os.path.normpath(self.default)):
                    # Windrow makes these folders itself, so a link there is a script's.
                    continue
                # So is the file of rows.
                real = _in_real_folder(place) if place == paths.append_row else os.path.realpath(place)
                if real != self._anchored(place):
                    found[place] = real
        return replace(paths, places=found)

    def folder(self, path: Path, paths: StepPaths) -> Folder:
        """Open a folder that is an output of a step, or holds one. Raises OSError, also LinkRefused, OutsideRoots."""
        return self._allowed(Folder.open(self._real(str(path), paths)))

    @contextmanager
    def holder(self, path: Path, paths: StepPaths) -> Iterator[tuple[Folder, str]]:
        """The open folder that holds an output, or what is below one, and the name in it. Raises as `folder`."""
        above, _, name = self._real(str(path), paths).rpartition("/")
        with self._allowed(Folder.open(above or "/")) as folder:
            yield folder, name

    def output(self, path: Path, paths: StepPaths) -> tuple[Folder, str]:
        """Open an output: its folder and "", or, if it is not a folder, the one that holds it and its name.

        Raises as `folder`.
        """
        try:
            return self.folder(path, paths), ""
        except NotADirectoryError:
            above, _, name = self._real(str(path), paths).rpartition("/")
            return self._allowed(Folder.open(above or "/")), name

    def _allowed(self, folder: Folder) -> Folder:
        """Raises OutsideRoots, and closes the folder, if it may not be used."""
        if self._roots is not None:
            try:
                # Of what is open now, wherever its path leads in a moment.
                path = folder.real_path()
                if not self._roots.hold_real(path):
                    raise OutsideRoots(path, self._roots)
            except BaseException:
                folder.close()
                raise
        return folder

    def _real(self, path: str, paths: StepPaths) -> str:
        if paths.places is None:
            # The step began in an earlier version, which did not remember what links led to.
            return _in_real_folder(path)
        for above in (Path(path), *Path(path).parents):
            if (real := paths.places.get(str(above))) is not None:
                return str(Path(real, Path(path).relative_to(above)))
        return self._anchored(path)

    def _anchored(self, path: str) -> str:
        for folder, real in self._anchors.items():
            if _is_below(path, folder):
                return str(Path(real, Path(path).relative_to(folder)))
        return path


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _in_real_folder(path: str) -> str:
    return str(Path(os.path.realpath(Path(path).parent), Path(path).name))
