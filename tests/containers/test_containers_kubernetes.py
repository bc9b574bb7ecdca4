"""What the Helm chart and the provider `kubernetes` start, as containers: with the users, the read-only file systems,
the capabilities, the modes of secrets and the names that the manifests give them. No cluster runs: Docker has the part
of the kubelet.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from container_engine import docker

sys.path += [str(Path(__file__).parents[1] / "fleet" / "kube"), str(Path(__file__).parents[1] / "integration")]

from embedded_run import wait_until
from helm_program import HelmMissing, rendered
from windrow.fleet.agent_command import request_of
from windrow.fleet.file import load_fleet_file
from windrow.fleet.providers.kubernetes.manifest import job_of

Object = dict[str, Any]
USER = 1000
VALUES = {
    "images": {
        "master": {"repository": "windrow-master", "tag": "latest"},
        "agent": {"repository": "windrow-agent", "tag": "latest"},
    },
    "fleet": {"groups": {"cpu": {"slots": 1, "memory": "1GB", "max": 1}}},
}


SCRIPT = """\
import os


def run(mini_batch):
    return [f"{os.getuid()} {os.path.basename(path)}" for path in mini_batch]
"""
JOB = """\
type: pipeline
jobs:
  list:
    type: parallel
    inputs:
      files: {type: uri_folder, path: ./in}
    outputs:
      rows: {type: uri_file, path: ./rows.txt}
    input_data: ${{inputs.files}}
    mini_batch_size: "4"
    task: {type: run_function, code: ./code, entry_script: script.py, append_row_to: "${{outputs.rows}}"}
"""


class Pods:
    """Pods as containers of one network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = f"windrow-kube-{os.getpid()}"
        self.names: list[str] = []
        docker("network", "create", self.network)

    def run(self, name: str, spec: Object, *options: str) -> str:
        """Start the one container of a pod; returns its name."""
        (container,) = spec["containers"]
        pod, own = spec["securityContext"], container["securityContext"]
        assert pod["runAsNonRoot"] and not own["allowPrivilegeEscalation"] and own["capabilities"] == {"drop": ["ALL"]}
        words = ["run", "--detach", "--name", f"{self.network}-{name}", "--network", self.network, *options]
        words += ["--user", f"{pod['runAsUser']}:{pod['runAsGroup']}", "--cap-drop=ALL"]
        words += ["--security-opt=no-new-privileges", *(["--read-only"] if own.get("readOnlyRootFilesystem") else [])]
        volumes = {each["name"]: each for each in spec["volumes"]}
        for mount in container["volumeMounts"]:
            place = self._volume(name, volumes[mount["name"]])
            words += ["--volume", f"{place}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
        for each in container.get("env") or ():
            words += ["--env", f"{each['name']}={each['value']}"]
        command = container.get("command") or []
        words += [f"--entrypoint={command[0]}"] if command else []
        self.names.append(f"{self.network}-{name}")
        docker(*words, container["image"], *command[1:], *container.get("args", []))
        return self.names[-1]

    def _volume(self, pod: str, volume: Object) -> Path:
        """As a kubelet makes it: volumes belong to the group of the pod (fsGroup), and secrets to root."""
        claim = volume.get("persistentVolumeClaim")
        place = self.folder / (f"claim-{claim['claimName']}" if claim else f"{pod}-{volume['name']}")
        place.mkdir(parents=True, exist_ok=True)
        sources = (volume.get("projected") or {}).get("sources") or [volume]
        for source in sources:
            if secret := source.get("secret"):
                mode = secret.get("defaultMode") or volume["projected"]["defaultMode"]
                role = (secret.get("secretName") or secret["name"]).removeprefix("windrow-")
                for file in (self.folder / "pki" / role).iterdir():
                    shutil.copyfile(file, place / file.name)
                    (place / file.name).chmod(mode)
                    os.chown(place / file.name, 0, USER)
        os.chown(place, 0, USER)
        place.chmod(0o2775 if claim else 0o2777)
        return place

    def end(self) -> None:
        """Remove everything."""
        for name in self.names:
            docker("rm", "--force", "--volumes", name, check=False)
        docker("network", "rm", self.network, check=False)


@contextmanager
def pods_in(folder: Path) -> Iterator[Pods]:
    """Pods of one test."""
    made = Pods(folder)
    try:
        yield made
    finally:
        made.end()


def succeeds(*words: str) -> bool:
    """Whether a command does."""
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users, as a kubelet does")
def test_master_and_agent_work_with_the_rights_that_their_manifests_give_them(images: None, tmp_path: Path) -> None:
    try:
        objects = rendered(VALUES, tmp_path)
    except HelmMissing as error:
        pytest.skip(str(error))
    windrow = str(Path(sys.executable).with_name("windrow"))
    (names,) = [
        each["spec"]["template"]["spec"]["containers"][0]["args"]
        for each in objects
        if each["kind"] == "Job" and each["metadata"]["name"] == "windrow-setup"
    ]
    subprocess.run([windrow, "setup", "--folder", str(tmp_path / "pki"), "--name", ",".join(names)], check=True)
    (file,) = [
        each["data"]["fleet.yml"] for each in objects if each["kind"] == "ConfigMap" and "fleet.yml" in each["data"]
    ]
    (tmp_path / "fleet.yml").write_text(file)
    (group,) = load_fleet_file(tmp_path / "fleet.yml").fleet.groups
    with pods_in(tmp_path) as pods:
        (stateful,) = [each["spec"] for each in objects if each["kind"] == "StatefulSet"]
        spec = stateful["template"]["spec"]
        spec["volumes"].append({"name": "state", "persistentVolumeClaim": {"claimName": "state"}})
        alias = group.agent.master[0].partition(":")[0]
        master = pods.run("master", spec, "--network-alias", alias, "--publish", "127.0.0.1::8470")
        probe = spec["containers"][0]["readinessProbe"]["exec"]["command"]
        wait_until(
            lambda: (
                subprocess.run(["docker", "exec", master, *probe], capture_output=True, check=False).returncode == 0
            ),
            "the master is ready",
        )
        port = docker("port", master, "8470").strip().rpartition(":")[2]
        client = {
            "WINDROW_MASTER": f"localhost:{port}",
            "WINDROW_CA_FILE": str(tmp_path / "pki" / "client" / "ca.pem"),
            "WINDROW_TOKEN_FILE": str(tmp_path / "pki" / "client" / "client-token"),
        }

        def ask(*words: str) -> str:
            done = subprocess.run(
                [windrow, *words], env={**os.environ, **client}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr + docker("logs", master)
            return done.stdout

        request = request_of(group, "site-cpu-0a1b2c-x1", "", stays=True)
        agent_pod = job_of(group.engine, request)["spec"]["template"]["spec"]
        agent = pods.run("agent", agent_pod)
        wait_until(lambda: json.loads(ask("node", "list", "--format", "json")), docker("logs", agent))
        (tmp_path / "job" / "code").mkdir(parents=True)
        (tmp_path / "job" / "code" / "script.py").write_text(SCRIPT)
        (tmp_path / "job" / "in").mkdir()
        for number in range(20):
            (tmp_path / "job" / "in" / f"{number:02}").write_text("x")
        (tmp_path / "job" / "job.yml").write_text(JOB)
        job = ask("job", "create", str(tmp_path / "job" / "job.yml")).split()[0]
        wait_until(
            lambda: json.loads(ask("job", "show", job, "--format", "json"))["state"].upper() == "COMPLETED", "done"
        )
        ask("job", "download", job, "--to", str(tmp_path / "results"))
        (rows,) = (tmp_path / "results").rglob("rows.txt")
        assert rows.read_text().split("\n")[:-1] == [f"{USER} {number:02}" for number in range(20)]
        assert docker("inspect", "--format", "{{.State.Status}}", agent).strip() == "running"
        docker("stop", "--time", str(agent_pod["terminationGracePeriodSeconds"]), agent)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", agent).strip() == "0", docker("logs", agent)
