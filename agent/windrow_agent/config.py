"""The agent's configuration: one JSON document from `windrow agent` or from the embedded mode."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.rpc.address import stays_here

NODE_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


SANDBOX_MODES = ("off", "auto", "strict")


class BadConfig(ValueError):
    """The configuration cannot be used; the text says which setting, why, and what is allowed."""


def default_node_id() -> str:
    """The host's name, made to fit the rule for names."""
    name = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII).lstrip("._-")[:64]
    return name or "node"


def path_and_access(text: str) -> tuple[str, bool]:
    """The path of an `allowed_paths` entry, and whether it may be written."""
    path = text.removesuffix(":rw")
    return path, path != text


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of one agent.

    - `folder`: the agent's own folder, with its lock, code, logs and scratch files. One agent per folder.
    - `master_addresses`: gRPC targets, best first: `host:port` or `unix:/path`.
    - `join_token`: the secret that admits nodes; empty in the embedded mode. The text itself, not a file: a script of
      the same user could read a file, and send it away.
    - `tls_ca_file`: certificates that vouch for the master; null: no TLS.
    - `insecure`: talk to masters on other machines without TLS: whoever listens on the way can read the join token.
    - `node_id`: name of this node, the host's name by default.
    - `slots`: worker processes at a time; by default one for each processor that the agent may use.
    - `gpu_count`: GPUs for workers; by default all that the driver shows.
    - `python`: interpreter for user scripts; by default the active virtual or conda environment's, else our own.
    - `environments`: `build` the environments that steps ask for, or run all scripts in the node's `own` Python, as
      when `python` is set.
    - `environments_folder`: where built environments are kept; by default the user's cache, or else `folder`.
    - `drain_grace_s`: how long mini-batches may run on after SIGTERM before they are handed back.
    - `on_master_lost`: while the master is away, `finish` what is held, or `stop` when the leases have ended.
    - `give_up_after_s`: the agent ends when it has reached no master for this time; null: never.
    - `passed_environment`: further variables of the agent's environment that workers may see.
    - `node_rank`: AZUREML_CR_NODE_RANK of the workers.
    - `served`: started as a service (`windrow agent`), not by `windrow run`: the log also goes to stderr.
    - `memory_rows_bytes_max`: unacknowledged inline rows kept in memory; the rest goes to disk.
    - `held_rows_bytes_max`: all unacknowledged rows, staged ones included; beyond this, nothing new is started.
    - `fetched_bytes_max`: data fetched from remote storage ahead of the workers.
    - `sandbox`: whether workers are confined to what their step was given: `off`, `auto` (as far as the kernel can) or
      `strict` (a worker that cannot be confined does not start).
    - `allowed_paths`: paths that all jobs may read on this node; with `:rw` at the end, also write.
    - `job_paths`: folders below which a job may ask for paths (`--allow_path`).
    - `closed_paths`: files and folders of Windrow's, besides `folder`, that no script may reach: the state of a master
      on this machine, the file of the join token.
    """

    folder: Path
    master_addresses: tuple[str, ...]
    join_token: str = field(default="", repr=False)
    tls_ca_file: Path | None = None
    insecure: bool = False
    node_id: str = field(default_factory=default_node_id)
    labels: dict[str, str] = field(default_factory=dict)
    slots: int | None = None
    gpu_count: int | None = None
    python: str | None = None
    environments: str = "build"
    environments_folder: Path | None = None
    drain_grace_s: float = 30.0
    on_master_lost: str = "finish"
    give_up_after_s: float | None = None
    passed_environment: tuple[str, ...] = ()
    node_rank: int = 0
    log_level: str = "INFO"
    served: bool = False
    memory_rows_bytes_max: int = 64 << 20
    held_rows_bytes_max: int = 4 << 30
    fetched_bytes_max: int = 8 << 30
    sandbox: str = "off"
    allowed_paths: tuple[str, ...] = ()
    job_paths: tuple[str, ...] = ()
    closed_paths: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str | bytes) -> AgentConfig:
        """Reads JSON whose keys are the names of the fields. Raises BadConfig."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise BadConfig(f"The agent's configuration is not valid JSON: {error}") from error
        if not isinstance(document, dict):
            raise BadConfig("The agent's configuration must be a JSON object")
        known = {f.name: f for f in dataclasses.fields(cls)}
        if unknown := sorted(document.keys() - known.keys()):
            raise BadConfig(
                f"The agent's configuration has unknown keys: {', '.join(unknown)}. Allowed: {', '.join(known)}"
            )
        values: dict[str, Any] = {key: value for key, value in document.items() if value is not None}
        for name in ("folder", "master_addresses"):
            if not values.get(name):
                raise BadConfig(f"The agent's configuration lacks {name!r}")
        for name in ("folder", "tls_ca_file", "environments_folder"):
            if name in values:
                values[name] = Path(_typed(name, values[name], str)).absolute()
        for name in ("master_addresses", "passed_environment", "allowed_paths", "job_paths", "closed_paths"):
            if name in values:
                values[name] = tuple(_typed(name, item, str) for item in _typed(name, values[name], list))
        for name in ("node_id", "python", "on_master_lost", "log_level", "join_token", "sandbox"):
            if name in values:
                _typed(name, values[name], str)
        bounds = ("memory_rows_bytes_max", "held_rows_bytes_max", "fetched_bytes_max")
        for name in ("slots", "gpu_count", "node_rank", *bounds):
            if name in values and _typed(name, values[name], int) < 0:
                raise BadConfig(f"{name} is {values[name]}; it cannot be negative")
        for name in ("served", "insecure"):
            if name in values:
                _typed(name, values[name], bool)
        for name in ("drain_grace_s", "give_up_after_s"):
            if name in values:
                values[name] = float(_typed(name, values[name], (int, float)))
        if "labels" in values:
            values["labels"] = {str(k): str(v) for k, v in _typed("labels", values["labels"], dict).items()}
        config = cls(**values)
        config._check()
        return config

    def to_json(self) -> str:
        """The document that `parse` reads."""
        return json.dumps(dataclasses.asdict(self), default=str)

    def may_use(self, address: str) -> bool:
        """Whether secrets may be sent to a master's address: encrypted, without leaving this machine, or anyway."""
        return self.tls_ca_file is not None or self.insecure or stays_here(address)

    def _check(self) -> None:
        if not NODE_ID.fullmatch(self.node_id):
            raise BadConfig(
                f"node_id is {self.node_id!r}; it must begin with a letter or digit, "
                "followed by up to 63 letters, digits, '.', '_' or '-'"
            )
        for address in self.master_addresses:
            if not self.may_use(address):
                raise BadConfig(
                    f"the master at {address} is on another machine, and there is no --ca-file: its TLS could not be "
                    "checked, and the join token would be sent in clear text. Give the master's certificate "
                    "authority (--ca-file ca.pem). In a network where everybody is trusted, add --insecure"
                )
        if self.environments not in ("build", "own"):
            raise BadConfig(f"environments is {self.environments!r}; allowed: build, own")
        if self.on_master_lost not in ("finish", "stop"):
            raise BadConfig(f"on_master_lost is {self.on_master_lost!r}; allowed: finish, stop")
        if self.sandbox not in SANDBOX_MODES:
            raise BadConfig(f"sandbox is {self.sandbox!r}; allowed: {', '.join(SANDBOX_MODES)}")
        for name in ("allowed_paths", "job_paths", "closed_paths"):
            for text in getattr(self, name):
                if not text.startswith("/"):
                    raise BadConfig(f"{name} holds {text!r}, which is not an absolute path")
        if self.slots is not None and self.slots < 1:
            raise BadConfig("slots is 0; an agent needs at least one")
        if len(self.labels) > 64:
            raise BadConfig(f"there are {len(self.labels)} labels; at most 64 are allowed")


def _typed(name: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = kind.__name__ if isinstance(kind, type) else "number"
        raise BadConfig(f"{name} holds {value!r}; it must be of type {expected}")
    return value
