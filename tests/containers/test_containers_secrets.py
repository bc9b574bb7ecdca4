"""What should not be seen: nowhere to be found. What is not needed: not there."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import windrow
from container_access import (
    in_setup,
    log_of,
    token_of,
)
from container_cluster import Cluster, Work, processes
from container_engine import docker
from windrow_master.setup.authority import Authority

pytestmark = pytest.mark.timeout(300, func_only=True)

PORT = 8470


def test_one_port_is_published_and_nothing_else_listens(cluster: Cluster) -> None:
    for container in [cluster.master, *cluster.agents]:
        found = json.loads(docker("inspect", container))[0]
        published = {port: bound for port, bound in found["NetworkSettings"]["Ports"].items() if bound}
        if container == cluster.master:
            assert published == {f"{PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(cluster.port)}]}
            assert listening(container) == {PORT}
        else:
            assert not published
            assert not listening(container)


def listening(container: str) -> set[int]:
    """TCP ports on which its processes listen, and UDP ports that they have; without the engine's name server."""
    ports = set()
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in docker("exec", container, "cat", f"/proc/net/{table}", check=False).splitlines()[1:]:
            address, port = line.split()[1].split(":")
            if line.split()[3] == state and address != "0B00007F":
                ports.add(int(port, 16))
    return ports


def test_no_process_has_rights_that_it_does_not_need(cluster: Cluster) -> None:
    uid = cluster.user
    work = Work(cluster, "rights").submit().wait_done(0.1)
    seen = 0
    containers = [cluster.master, *cluster.agents]
    # All of them while the work runs, before anything that takes time.
    for number, line in [process for container in containers for process in processes(container)]:
        try:
            text = Path(f"/proc/{number}/status").read_text()
        except FileNotFoundError:
            continue
        status = dict(pair.split(":\t", 1) for pair in text.splitlines() if ":\t" in pair)
        if "runc init" in line:  # the engine begins the health check, and has not given up its own rights
            continue
        assert status["NoNewPrivs"] == "1", line
        if "docker-init" in line or "windrow health" in line:
            continue
        seen += 1
        assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}, line
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(uid)}, line
    assert seen > 1 + 4 * 2, "master, agents, and workers among them"
    for container in containers:
        host = json.loads(docker("inspect", container))[0]["HostConfig"]
        assert not host["Privileged"] and host["CapDrop"] == ["ALL"]
        # An agent's scratch is in its container. Nobody is root in there.
        read_only = container == cluster.master
        assert host["ReadonlyRootfs"] == read_only
        user, why = ("0", b"Read-only file system") if read_only else (uid, b"Permission denied")
        for place in ("/usr", "/etc", "/opt/windrow", "/opt/windrow/bin", "/var", "/"):
            done = subprocess.run(
                ["docker", "exec", "-u", user, container, "touch", f"{place}/x"], capture_output=True, check=False
            )
            assert why in done.stderr
    work.check()


KEY = re.compile(rb"PRIVATE KEY-----(?:\\n|\s)*[A-Za-z0-9+/]{32}")


def secrets_of(cluster: Cluster) -> list[bytes]:
    """Both tokens, and a line of each private key that makes it out."""
    files = "[f'/windrow/authority/{name}.pem' for name in ('authority', 'tls')]"
    program = f"for file in {files}: print(open(file).read())"
    keys = re.findall(r"PRIVATE KEY-----\n(\S+)\n(\S+)", in_setup(cluster, program))
    assert len(keys) == 2
    tokens = [token_of(cluster, name) for name in ("join-token", "client-token")]
    return [text.encode() for text in (*tokens, *(second for _, second in keys))]


def test_secrets_are_in_no_log_no_image_and_no_description_of_a_container(cluster: Cluster) -> None:
    hidden = secrets_of(cluster)
    containers = [
        one for service in ("setup", "master", "agent") for one in cluster.containers(service, all_of_them=True)
    ]
    assert len(containers) >= 6
    texts = {f"logs of {one}": log_of(one) for one in containers}
    texts |= {f"inspect {one}": docker("inspect", one) for one in containers}
    for image in ("windrow-master", "windrow-agent"):
        texts[f"history of {image}"] = docker("history", "--no-trunc", image) + docker("inspect", image)
    for where, text in texts.items():
        content = text.encode()
        assert not [1 for secret in hidden if secret in content] and not KEY.search(content), where
    size = 0
    with subprocess.Popen(["docker", "save", "windrow-master", "windrow-agent"], stdout=subprocess.PIPE) as saved:
        for name, content in files_of(saved):
            size += len(content)
            assert not [1 for secret in hidden if secret in content], name
            # Libraries of the base image try themselves out with keys that everybody knows.
            assert name.startswith(("./usr/", "usr/")) or not KEY.search(content), name
    assert size > 100 << 20 and saved.returncode == 0


def files_of(saved: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files in all layers of images that are being saved."""
    with tarfile.open(fileobj=saved.stdout, mode="r|") as images:
        for part in images:
            layer = images.extractfile(part) if part.isfile() else None
            if layer is None:
                continue
            try:
                with tarfile.open(fileobj=layer, mode="r|") as files:
                    for member in files:
                        file = files.extractfile(member) if member.isfile() else None
                        if file is not None:
                            yield member.name, file.read()
            except tarfile.ReadError:
                continue  # a description, no layer; `docker history` tells the same


SEARCH = '''
import ctypes, hashlib, json, os, re, stat, subprocess, sys
SUMS = set({sums!r})
RUN = re.compile(rb"[0-9a-fA-F]{{64,}}")
KEY = re.compile(rb"PRIVATE KEY-----(?:\\\\\\\\n|\\\\s)*[A-Za-z0-9+/]{{32}}")
LIMIT = 64 << 20
SKIPPED = ("/usr/", "/opt/windrow/lib/", "/sys/", "/proc/", "/dev/")

def look(content, where, found):
    for run in RUN.findall(content):
        for start in range(min(len(run), 4096) - 63):
            digest = hashlib.sha256(run[start:start + 64]).hexdigest()
            if digest in SUMS:
                found.append(["token", digest, where])
    if KEY.search(content):
        found.append(["key", "", where])

def read(path):
    """What a file holds; nothing where it may not be read, or is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        chunks, size = [], 0
        while size < LIMIT:
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)
    except OSError:
        return b""
    finally:
        os.close(descriptor)

def opens(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True

def attaches(number):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(16, number, None, None) != 0:
        return False
    os.waitpid(number, 0x40000000)
    libc.ptrace(17, number, None, None)
    return True

def ways_into(number):
    ways = [name for name in ("environ", "mem", "maps", "fd/0", "auxv") if opens("/proc/%d/%s" % (number, name))]
    try:
        os.listdir("/proc/%d/fd" % number)
        ways.append("fd")
    except OSError:
        pass
    if attaches(number):
        ways.append("ptrace")
    return sorted(ways)

def run(mini_batch):
    found, seen = [], []
    for name, value in os.environb.items():
        look(value, "environment " + name.decode(), found)
    others = {{}}
    for number in filter(str.isdigit, os.listdir("/proc")):
        line = read_proc("/proc/%s/cmdline" % number)
        look(line, "cmdline", found)
        look(read_proc("/proc/%s/environ" % number), "environ", found)
        try:
            descriptors = os.listdir("/proc/%s/fd" % number)
        except OSError:
            descriptors = []
        for descriptor in descriptors:
            look(read("/proc/%s/fd/%s" % (number, descriptor)), "fd", found)
        if b"windrow_agent\\\\0" in line or b"docker-init" in line:
            others[line.split(b"\\\\0")[0].decode()] = ways_into(int(number))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = ways_into(child.pid)
    child.kill()
    child.wait()
    files = 0
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if not (os.path.join(folder, name) + "/").startswith(SKIPPED)]
        for name in names:
            path = os.path.join(folder, name)
            files += 1
            look(read(path), path, found)
    return [json.dumps({{"found": found, "others": others, "own": own, "files": files}})]

def read_proc(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
'''


def test_a_script_that_searches_everything_finds_no_secret(cluster: Cluster) -> None:
    decoys = {name: secrets.token_hex(32) for name in ("file", "environment")}
    hidden = [token_of(cluster, name) for name in ("join-token", "client-token")]
    sums = [hashlib.sha256(text.encode()).hexdigest() for text in (*hidden, *decoys.values())]
    environment = f"environment_variables: {{SOMETHING: {decoys['environment']}}}"
    script = SEARCH.replace("\\\\", "\\").format(sums=sums)
    assert not [1 for secret in (*hidden, *decoys.values()) if secret in script]
    work = Work(cluster, "search", items=4, script=script, settings=environment)
    decoy = cluster.data / "decoy"
    key = Authority.make().pem
    decoy.write_bytes(decoys["file"].encode() + b"\n" + key)
    decoy.chmod(0o644)
    try:
        job = work.submit().wait()
        assert job.state == "completed", job.message
        rows = [json.loads(line) for line in work.output().splitlines()]
    finally:
        decoy.unlink()
    assert len(rows) == 4
    for row in rows:
        tokens = {(digest, place) for kind, digest, place in row["found"] if kind == "token"}
        assert not {digest for digest, _ in tokens} & set(sums[:2]), tokens
        assert (sums[2], "/data/decoy") in tokens, "what can be read is found"
        assert (sums[3], "environment SOMETHING") in tokens
        assert [place for kind, _, place in row["found"] if kind == "key"] == ["/data/decoy"]
        assert len(row["others"]) == 2 and not any(row["others"].values()), "agent and init: no way in"
        assert {"mem", "environ", "fd", "ptrace"} <= set(row["own"]), "a process of its own is open to it"
        assert row["files"] > 100


@pytest.mark.parametrize("image", ["windrow-master", "windrow-agent"])
def test_an_image_says_its_version_and_is_not_roots(images: None, image: str) -> None:
    described = json.loads(docker("inspect", image))[0]["Config"]
    assert described["Labels"]["org.opencontainers.image.version"] == windrow.__version__
    assert described["User"] == "1000:1000"
