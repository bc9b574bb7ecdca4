"""Runs the one container of a pod as a process of this machine.

It has the command, arguments and variables of the container. Volumes are folders of this machine, whose paths take the
place of those that the container would see; users, images, limits and the network have no effect.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from kube_api import KubeApi, Object

ENTRYPOINT = "windrow"
"""Of both images."""


class Containers:
    """Starts containers, with the Secrets of an API."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self.claims: dict[str, Path] = {}
        """Folders, by the names of claims."""
        self.config_maps: dict[str, dict[str, str]] = {}
        self.replaced: dict[str, str] = {}
        """Words that commands and variables have, and what stands in their place: addresses."""

    def add_secret(self, name: str, **files: bytes) -> None:
        """Store a Secret; a dash in a key is written as _."""
        data = {key.replace("_", "-"): base64.b64encode(value).decode() for key, value in files.items()}
        with self._api.store.lock:
            self._api.store.create("secrets", {"metadata": {"name": name}, "data": data})

    def start(self, spec: Object, folder: Path, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start the container of a pod; its volumes and its log are in `folder`."""
        (container,) = spec["containers"]
        folder.mkdir(parents=True, exist_ok=True)
        paths = self._mount(spec, container, folder)
        words = [*container.get("command", [ENTRYPOINT]), *container.get("args", [])]
        variables = {one["name"]: one.get("value", "") for one in container.get("env") or ()}
        found = {name: self.here(value, paths) for name, value in variables.items()}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self.here(word, paths) for word in words],
                env={"PATH": path, **found, **(environment or {})},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def here(self, text: str, paths: dict[str, str]) -> str:
        """A text of a container as its process gets it. Nothing that Windrow sends names a variable."""
        for found in re.finditer(r"\$\$|\$\([^)]*\)", text):
            assert found[0] == "$$", f"{text!r} names a variable"
        text = text.replace("$$", "$")
        text = self._replaced(text)
        if not paths:
            return text
        longest_first = "|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
        return re.sub(rf"(?<![\w./-])({longest_first})(?=/|$)", lambda found: paths[found[1]], text)

    def _mount(self, spec: Object, container: Object, folder: Path) -> dict[str, str]:
        """Make the volumes. Returns their folders by the paths where the container would see them."""
        volumes = {one["name"]: one for one in spec.get("volumes") or ()}
        paths = {}
        for mount in container.get("volumeMounts") or ():
            volume = volumes[mount["name"]]
            if "persistentVolumeClaim" in volume:
                place = self.claims[volume["persistentVolumeClaim"]["claimName"]]
            else:
                place = folder / mount["name"]
                place.mkdir(exist_ok=True)
                self._fill(volume, place)
            paths[mount["mountPath"]] = str(place)
        return paths

    def _fill(self, volume: Object, place: Path) -> None:
        for source in (volume.get("projected") or {}).get("sources") or [volume]:
            files: dict[str, bytes] = {}
            mode = 0o644
            secret, config = source.get("secret"), source.get("configMap")
            if secret:
                files = self._secret(secret.get("secretName") or secret["name"])
                mode = secret.get("defaultMode") or (volume.get("projected") or {}).get("defaultMode") or mode
            elif config:
                files = {name: self._replaced(text).encode() for name, text in self.config_maps[config["name"]].items()}
            else:
                assert "emptyDir" in source, source
            items: list[dict[str, Any]] = (secret or config or {}).get("items") or []
            for name, path in [(item["key"], item["path"]) for item in items] or [(name, name) for name in files]:
                (place / path).write_bytes(files[name])
                (place / path).chmod(mode)

    def _replaced(self, text: str) -> str:
        for before, after in self.replaced.items():
            text = text.replace(before, after)
        return text

    def _secret(self, name: str) -> dict[str, bytes]:
        with self._api.store.lock:
            data = self._api.store.objects["secrets"][name]["data"]
            return {key: base64.b64decode(value) for key, value in data.items()}
