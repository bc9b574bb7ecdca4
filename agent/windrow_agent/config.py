"""The agent's configuration: one JSON document from `windrow agent` or from the embedded mode."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.common.allocation_name import is_allocation_name
from windrow.rpc.address import stays_here

NODE_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)

SANDBOX_MODES = ("off", "auto", "given", "strict")
CONTROL_GROUP_MODES = ("off", "auto", "required")
DATA_CACHE = "data-cache"
"""The folder of the data cache, in the agent's."""
AUTO_JOB_USERS = range(2_100_000_000, 2_100_065_536)
"""Where `auto` looks for users of jobs: numbers that no system gives to anybody, and that containers do not have."""
JOB_USERS_BLOCK = 1024
"""How many users an agent takes with `auto`: one is of the builders of environments."""
_JOB_USER_MIN, _JOB_USER_MAX = 1000, (1 << 31) - 1
HAND_BACK_S = 5.0
"""What an agent needs at its end to hand back what still runs."""
WORKER_PROCESSES_MIN = 16
WORKER_MEMORY_MIN = 32 << 20
"""With less, no Python with a worker's modules starts."""


class BadConfig(ValueError):
    """The configuration cannot be used; the text says which setting, why, and what is allowed."""


def default_node_id() -> str:
    """The host's name, made to fit the rule for names."""
    name = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII).lstrip("._-")[:64]
    return name or "node"


def users_of(text: str) -> range:
    """The numbers of `FIRST-LAST`. Raises BadConfig."""
    found = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", text)
    if found is None:
        raise BadConfig(f"job_users is {text!r}; allowed: off, auto, or a range of numbers such as 200000-204095")
    first, last = int(found[1]), int(found[2])
    if not _JOB_USER_MIN <= first < last <= _JOB_USER_MAX:
        raise BadConfig(
            f"job_users is {text}; a range has at least two numbers, from {_JOB_USER_MIN} to {_JOB_USER_MAX}, the "
            "lower one first: one is for builders of environments, and one for each job"
        )
    return range(first, last + 1)


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
    - `memory_bytes`: memory for workers whose steps say how much they need; by default all that the agent may use.
    - `python`: interpreter for user scripts; by default the active virtual or conda environment's, else our own.
    - `environments`: `build` the environments that steps ask for, or run all scripts in the node's `own` Python, as
      when `python` is set.
    - `environments_folder`: where built environments are kept; by default the user's cache, or else `folder`.
    - `drain_grace_s`: how long mini-batches may run on after SIGTERM before they are handed back.
    - `lifetime_s`: how long the agent lives from its start on, before something else ends it (the walltime of a batch
      job): it is leased only what it can finish, and drains in time for `drain_grace_s`; null: nobody knows an end.
    - `allocation`: the allocation of a fleet that the agent runs in; empty: in none.
    - `exit_idle_s`: the agent leaves when it has had nothing to do for this time; null: never.
    - `preemption_check`: the words of a command that says whether this machine is about to be taken away
      (`session.preemption`); then the agent drains. Empty: nobody is asked.
    - `on_master_lost`: while the master is away, `finish` what is held, or `stop` when the leases have ended.
    - `give_up_after_s`: the agent ends when it has reached no master for this time; null: never.
    - `passed_environment`: further variables of the agent's environment that workers may see.
    - `node_rank`: AZUREML_CR_NODE_RANK of the workers.
    - `served`: started as a service (`windrow agent`), not by `windrow run`: the log also goes to stderr.
    - `memory_rows_bytes_max`: unacknowledged inline rows kept in memory; the rest goes to disk.
    - `held_rows_bytes_max`: all unacknowledged rows, staged ones included; beyond this, nothing new is started.
    - `fetched_bytes_max`: data fetched from remote storage ahead of the workers.
    - `data_cache_bytes_max`: disk space for the data cache, where what was fetched from remote storage stays for the
      next mini-batch or job that reads it; 0: there is none.
    - `sandbox`: `off`; `auto`: keep workers out of Windrow's own files and of other processes; `given`: confine them to
      what their step was given, both as far as the kernel can; `strict`: as `given`, and a worker that cannot be
      confined does not start.
    - `allowed_paths`: with `given` and `strict`, paths that all jobs may read on this node; with `:rw` at the end, also
      write.
    - `job_paths`: with `given` and `strict`, folders below which a job may ask for paths (`--allow_path`).
    - `control_groups`: `off`; `auto`: a control group for each worker where that is possible; `required`: where it is
      not, the agent does not start.
    - `worker_processes_max`: processes and threads that a worker may have at a time, with control groups; by default
      4,096, on large machines 64 for each processor, on small ones what leaves enough to the agent.
    - `worker_memory_bytes_max`: memory that a worker may use, with control groups; by default only that of all workers
      together has a bound, which leaves some to the agent.
    - `job_users`: `off`; a range of user numbers, `FIRST-LAST`: each job runs as a user of its own, where that is not
      possible, the agent does not start; `auto`: the same with numbers that Windrow finds, where it is possible.
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
    memory_bytes: int | None = None
    python: str | None = None
    environments: str = "build"
    environments_folder: Path | None = None
    drain_grace_s: float = 30.0
    lifetime_s: float | None = None
    allocation: str = ""
    exit_idle_s: float | None = None
    preemption_check: tuple[str, ...] = ()
    on_master_lost: str = "finish"
    give_up_after_s: float | None = None
    passed_environment: tuple[str, ...] = ()
    node_rank: int = 0
    log_level: str = "INFO"
    served: bool = False
    memory_rows_bytes_max: int = 64 << 20
    held_rows_bytes_max: int = 4 << 30
    fetched_bytes_max: int = 8 << 30
    data_cache_bytes_max: int = 0
    sandbox: str = "auto"
    allowed_paths: tuple[str, ...] = ()
    job_paths: tuple[str, ...] = ()
    closed_paths: tuple[str, ...] = ()
    control_groups: str = "auto"
    worker_processes_max: int | None = None
    worker_memory_bytes_max: int | None = None
    job_users: str = "off"

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
        lists = ("preemption_check", "passed_environment", "allowed_paths", "job_paths", "closed_paths")
        for name in ("master_addresses", *lists):
            if name in values:
                values[name] = tuple(_typed(name, item, str) for item in _typed(name, values[name], list))
        words = ("node_id", "python", "allocation", "on_master_lost", "log_level", "join_token")
        for name in (*words, "sandbox", "control_groups", "job_users"):
            if name in values:
                _typed(name, values[name], str)
        bounds = ("memory_rows_bytes_max", "held_rows_bytes_max", "fetched_bytes_max", "data_cache_bytes_max")
        worker_bounds = ("worker_processes_max", "worker_memory_bytes_max")
        for name in ("slots", "gpu_count", "memory_bytes", "node_rank", *bounds, *worker_bounds):
            if name in values and _typed(name, values[name], int) < 0:
                raise BadConfig(f"{name} is {values[name]}; it cannot be negative")
        for name in ("served", "insecure"):
            if name in values:
                _typed(name, values[name], bool)
        for name in ("drain_grace_s", "lifetime_s", "exit_idle_s", "give_up_after_s"):
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
        if self.allocation and not is_allocation_name(self.allocation):
            raise BadConfig(
                f"allocation is {self.allocation!r}; it must be at most 40 lower-case letters, digits and '-', as the "
                "fleet has named it"
            )
        for address in self.master_addresses:
            if not self.may_use(address):
                raise BadConfig(
                    f"the master at {address} is on another machine, and there is no --ca-file: its TLS could not be "
                    "checked, and the join token would be sent in clear text. Give the master's certificate "
                    "authority (--ca-file ca.pem). In a network where everybody is trusted, add --insecure"
                )
        if self.lifetime_s is not None and self.lifetime_s <= self.drain_grace_s + HAND_BACK_S:
            raise BadConfig(
                f"lifetime_s is {self.lifetime_s:g}, and before its end the agent needs {HAND_BACK_S:g} s and the "
                f"{self.drain_grace_s:g} s of drain_grace_s to leave: it would never take work. Let it live longer, or "
                "give it less grace"
            )
        if self.environments not in ("build", "own"):
            raise BadConfig(f"environments is {self.environments!r}; allowed: build, own")
        if self.on_master_lost not in ("finish", "stop"):
            raise BadConfig(f"on_master_lost is {self.on_master_lost!r}; allowed: finish, stop")
        if self.sandbox not in SANDBOX_MODES:
            raise BadConfig(f"sandbox is {self.sandbox!r}; allowed: {', '.join(SANDBOX_MODES)}")
        if self.control_groups not in CONTROL_GROUP_MODES:
            raise BadConfig(f"control_groups is {self.control_groups!r}; allowed: {', '.join(CONTROL_GROUP_MODES)}")
        if self.job_users not in ("off", "auto"):
            users_of(self.job_users)
        for name, least in (
            ("worker_processes_max", WORKER_PROCESSES_MIN),
            ("worker_memory_bytes_max", WORKER_MEMORY_MIN),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadConfig(f"{name} is {value:,}; a worker needs at least {least:,}")
            if value is not None and self.control_groups == "off":
                raise BadConfig(f"{name} needs control groups, and control_groups is off")
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
