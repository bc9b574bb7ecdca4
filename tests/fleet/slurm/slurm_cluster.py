"""A real Slurm on this machine: munge, a controller, several node daemons, and accounting where a test needs it.

All of it is in one folder, with ports of its own, and ends with the test. What runs in jobs are real processes.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from slurm_packages import Programs, programs

NODES = ("n1", "n2", "n3")
CPUS, MEMORY_MB = 4, 4000
"""Of each node, as Slurm is told; the machine may have less."""
JOBS_MAX = 10_000
"""So many jobs are submitted to one controller at most."""
WAIT_S = 60.0
NAME_LENGTH = 12


def wait_for(what: str, condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < end, f"not within {wait_s:g} s: {what}"
        time.sleep(0.1)


class SlurmCluster:
    """Three nodes of four processors; partitions `normal` (the default), `urgent`, which preempts it, and `closed`."""

    def __init__(self, folder: Path, found: Programs, *, has_accounting: bool) -> None:
        self.folder = folder
        self.programs = found
        self.has_accounting = has_accounting
        self.configuration = folder / "slurm.conf"
        self.extra_lines: list[str] = []
        """Of slurm.conf; they hold after `write_configuration` and a restart of the controller."""
        self._controllers = 0
        self._ports = _free_ports(len(NODES) + 3)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Slurm's commands, and those that run them, find this cluster."""
        folders = [folder for folder in self.programs.folders if folder not in os.environ["PATH"].split(os.pathsep)]
        return {
            "SLURM_CONF": str(self.configuration),
            "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        }

    def start(self) -> None:
        """Start everything, and wait until the nodes are idle."""
        for name in ("state", "log", "munge", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        (self.folder / "munge").chmod(0o700)
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self.write_configuration()
        self._spawn(
            "munged",
            [
                *("munged", "--foreground", "--force", "--key-file", str(key), "--socket", str(self._socket)),
                *(f"--{name}-file={self.folder / 'munge' / name}" for name in ("pid", "log", "seed")),
            ],
        )
        wait_for("munged listens", self._socket.exists)
        if self.has_accounting:
            self._start_accounting()
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        wait_for("all nodes are idle", lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == self._idle)

    @property
    def _idle(self) -> list[str]:
        return ["idle"] * (3 * len(NODES))

    def stop(self) -> None:
        """End every process of the cluster, and of its jobs."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._running.values():
            process.wait()
        marked = f"SLURM_CONF={self.configuration}"
        for found in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if marked in Path(f"/proc/{found.pid}/environ").read_bytes().decode(errors="replace").split("\0"):
                    found.kill()

    def start_controller(self) -> None:
        """Start the controller, and wait until it answers. It gives numbers to jobs that no earlier one has given: one
        that has crashed may have forgotten some, and the nodes would end what has such a number.
        """
        self._controllers += 1
        self.write_configuration()
        self._spawn("slurmctld", ["slurmctld", "-D"])
        wait_for("the controller answers", self._answers)

    def kill_controller(self) -> None:
        """Kill it, as a crash does."""
        self.signal_controller(signal.SIGKILL)
        self._running.pop("slurmctld").wait()

    def signal_controller(self, number: int) -> None:
        """Send a signal to the controller."""
        self._running["slurmctld"].send_signal(number)

    def reconfigure(self) -> None:
        """Have controller and nodes read the file of settings anew, and wait until they have."""
        self.write_configuration()
        self.run("scontrol", "reconfigure")
        wait_for("all nodes are idle", lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == self._idle)

    def wait_for_node(self, node: str) -> None:
        """Wait until a node that was started takes jobs, or has some already."""
        serves = ("idle", "mixed", "allocated", "completing")
        wait_for(f"{node} is back", lambda: self.tried("sinfo", "-h", "-n", node, "-o", "%T").stdout.startswith(serves))

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        stepd = self.programs.path_of("slurmstepd")
        self._spawn(f"slurmd-{node}", ["slurmd", "-D", "-N", node, "-d", stepd])

    def kill_node(self, node: str) -> set[str]:
        """Kill the daemon of a node, and all that runs on it, as a power failure does; return the jobs' names."""
        process = self._running.pop(f"slurmd-{node}")
        process.kill()
        process.wait()
        names: set[str] = set()
        marks = (f"SLURMD_NODENAME={node}", f"SLURM_CONF={self.configuration}")
        for found in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                variables = Path(f"/proc/{found.pid}/environ").read_bytes().decode(errors="replace").split("\0")
                if all(mark in variables for mark in marks):
                    names.update(one.partition("=")[2] for one in variables if one.startswith("SLURM_JOB_NAME="))
                    for above in found.parents():
                        if above.name() == "slurmstepd":
                            above.kill()
                    found.kill()
        return names

    def run(self, *words: str, user: int | None = None, stdin: str = "") -> str:
        """What one of Slurm's commands prints; it has to succeed."""
        done = self.tried(*words, user=user, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def tried(self, *words: str, user: int | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """What came of one of Slurm's commands. `user`: run by another user."""
        return subprocess.run(
            [self.programs.path_of(words[0]), *words[1:]],
            env=os.environ | self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            user=user,
            cwd="/",
        )

    def sbatch(self, script: str, *options: str, user: int | None = None) -> str:
        """Submit a job of someone else than the fleet; return its number."""
        words = ["sbatch", "--parsable", "--output=/dev/null", "--mem=100M", *options]
        return self.run(*words, user=user, stdin=f"#!/bin/sh\n{script}\n").strip()

    def job_state(self, number: str) -> str:
        """The state of a job in Slurm's word."""
        return self.run("squeue", "--states=all", "-h", "-j", number, "-o", "%T").strip()

    def write_configuration(self) -> None:
        """Write slurm.conf."""
        host, user, folder = socket.gethostname().partition(".")[0], getpass.getuser(), self.folder
        lines = [
            "ClusterName=windrow",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={self._ports[0]}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/munge",
            # A job that was requeued starts again once the credentials of its first start are void.
            f"AuthInfo=socket={self._socket},cred_expire=5",
            "CredType=cred/munge",
            "MpiDefault=none",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld.log",
            f"SlurmdLogFile={folder}/log/slurmd-%n.log",
            # No control groups, and nothing bound to processors: what runs here has none of its own.
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            f"DefMemPerCPU={MEMORY_MB // CPUS}",
            "SlurmdParameters=config_overrides",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,batch_sched_delay=0",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "ReturnToService=2",
            f"FirstJobId={self._controllers * JOBS_MAX + 1}",
            "KillWait=10",
            "SlurmdTimeout=10",
            "MessageTimeout=5",
            *(f"{name}={value}" for name, value in self._accounting_settings()),
            *([f"PluginDir={self.programs.plugins}"] if self.programs.plugins else []),
            *self.extra_lines,
        ]
        for node, port in zip(NODES, self._ports[1:], strict=False):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory={MEMORY_MB}"
            )
        nodes = ",".join(NODES)
        lines += [
            f"PartitionName=normal Nodes={nodes} Default=YES MaxTime=INFINITE State=UP PriorityTier=10",
            f"PartitionName=urgent Nodes={nodes} MaxTime=INFINITE State=UP PriorityTier=20 PreemptMode=OFF",
            f"PartitionName=closed Nodes={nodes} MaxTime=INFINITE State=INACTIVE",
        ]
        if not any(line.startswith("MinJobAge") for line in lines):
            lines.append("MinJobAge=300")
        # In one step: commands read it all the time.
        written = self.configuration.with_suffix(".written")
        written.write_text("\n".join(lines) + "\n")
        written.chmod(0o644)
        written.replace(self.configuration)

    @property
    def _socket(self) -> Path:
        return self.folder / "munge.socket"

    def _answers(self) -> bool:
        return self.tried("scontrol", "ping").stdout.count("is UP") == 1

    def _accounting_settings(self) -> Iterator[tuple[str, object]]:
        if self.has_accounting:
            yield "AccountingStorageType", "accounting_storage/slurmdbd"
            yield "AccountingStorageHost", "127.0.0.1"
            yield "AccountingStoragePort", self._ports[-1]
            yield "AccountingStoragePass", self._socket
            yield "AccountingStorageEnforce", "associations,limits,qos"

    def _start_accounting(self) -> None:
        """A database and slurmdbd; this user has the account `science`."""
        data, server, user = self.folder / "database", self.folder / "mysql.socket", getpass.getuser()
        base = str(self.programs.root / "usr")
        installed = [self.programs.path_of("mariadb-install-db"), "--no-defaults", f"--basedir={base}"]
        installed += [f"--datadir={data}", f"--user={user}", "--auth-root-authentication-method=normal"]
        subprocess.run([*installed, "--skip-test-db"], check=True, stdout=subprocess.DEVNULL, env=self._variables)
        self._spawn(
            "mariadbd",
            [
                *("mariadbd", "--no-defaults", f"--basedir={base}", f"--datadir={data}", f"--user={user}"),
                *(f"--socket={server}", "--bind-address=127.0.0.1", f"--port={self._ports[-2]}"),
                *(f"--pid-file={self.folder / 'mariadb.pid'}", "--innodb-flush-log-at-trx-commit=0"),
            ],
        )
        wait_for("the database listens", server.exists)
        configuration = self.folder / "slurmdbd.conf"
        lines = [
            "AuthType=auth/munge",
            f"AuthInfo=socket={self._socket}",
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self._ports[-1]}",
            f"SlurmUser={user}",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={self._ports[-2]}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            "StorageLoc=slurm_acct_db",
            f"LogFile={self.folder}/log/slurmdbd.log",
            f"PidFile={self.folder}/slurmdbd.pid",
            *([f"PluginDir={self.programs.plugins}"] if self.programs.plugins else []),
        ]
        configuration.write_text("\n".join(lines) + "\n")
        configuration.chmod(0o600)
        grant = (
            "CREATE DATABASE slurm_acct_db; CREATE USER slurm@'%' IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@'%';"
        )
        asked = [self.programs.path_of("mariadb"), "--no-defaults", f"--socket={server}", "-u", "root", "-e", grant]
        wait_for("the database answers", lambda: self._succeeds(asked))
        self._spawn("slurmdbd", ["slurmdbd", "-D"])
        added = ["sacctmgr", "-i", "add", "cluster", "windrow"]
        wait_for("slurmdbd answers", lambda: self.tried(*added).returncode == 0)
        self.run("sacctmgr", "-i", "add", "account", "science", "cluster=windrow")
        self.run("sacctmgr", "-i", "add", "user", user, "account=science", "cluster=windrow")

    @property
    def _variables(self) -> dict[str, str]:
        return os.environ | self.environment

    def _succeeds(self, words: list[str]) -> bool:
        return subprocess.run(words, capture_output=True, check=False, env=self._variables).returncode == 0

    def _spawn(self, name: str, words: list[str]) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                [self.programs.path_of(words[0]), *words[1:]],
                env=self._variables | {"SLURM_CONF": str(self.configuration)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
            )


@contextmanager
def slurm_cluster(*, has_accounting: bool = False) -> Iterator[SlurmCluster]:
    """A cluster, in a folder with a path short enough for sockets, which every user reaches. Raises SlurmMissing."""
    found = programs()
    folder = Path(tempfile.mkdtemp(prefix="windrow-slurm-"))
    folder.chmod(0o755)
    cluster = SlurmCluster(folder, found, has_accounting=has_accounting)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [server.getsockname()[1] for server in held]
    finally:
        for server in held:
            server.close()
