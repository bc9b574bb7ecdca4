"""What stands behind the API of the tests' cluster: the controller of Jobs, a scheduler, and a kubelet.

The kubelet runs each pod as a process of this machine: `kube_containers`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from kube_api import KubeApi, Object, now
from kube_containers import Containers

NODE = "node-a"
TRACKING = "batch.kubernetes.io/job-tracking"
TICK_S = 0.01
MISSING_IMAGE = "registry.example/missing:1"
LOG_LINES = 80
"""Of a failed container, as its termination message."""
LOG_BYTES = 2048


class KubeEngine:
    """Runs what is in the store of an API."""

    def __init__(self, api: KubeApi, folder: Path, *, cpus: float = 4) -> None:
        self.api, self.store, self.folder = api, api.store, folder
        self.cpus = cpus
        """Of the one node."""
        self.containers = Containers(api)
        self.pods_quota: int | None = None
        """So many pods may be there; the Jobs' controller is refused others."""
        self.is_frozen = False
        """Kubelet and controllers do nothing."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: dict[str, float] = {}
        self._oom: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()

    def end(self) -> None:
        """End everything, with all processes."""
        self._stop.set()
        self._thread.join()
        for process in self._processes.values():
            _kill_group(process.pid)
            process.wait()
        if self._failure is not None:
            raise self._failure

    # What happens to pods.

    def pod(self, job: str) -> Object:
        """The pod of a Job."""
        with self.store.lock:
            (found,) = [one for one in self.store.objects["pods"].values() if _job_name(one) == job]
            return found

    def pid(self, job: str) -> int:
        """The process of a Job's pod."""
        return self._processes[self.pod(job)["metadata"]["uid"]].pid

    def folder_of(self, job: str) -> Path:
        """Where the volumes and the log of a Job's pod are."""
        return self.folder / self.pod(job)["metadata"]["uid"]

    def evict(self, job: str, reason: str = "EvictionByEvictionAPI", said: str = "Eviction API: evicting") -> None:
        """Take a pod away: somebody drains its node, or the scheduler needs its place (PreemptionByScheduler)."""
        with self.store.lock:
            pod = self.pod(job)
            _set_condition(pod, "DisruptionTarget", "True", reason, said)
            self.store.delete("pods", pod["metadata"]["name"], {})
            self.store.changed(pod)

    def preempt(self, job: str) -> None:
        """The scheduler takes a pod away for another."""
        self.evict(job, "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod")

    def press(self, job: str, *, own_fault: bool) -> None:
        """The kubelet evicts a pod at once: its node runs short, or (own_fault) it has written too much itself."""
        with self.store.lock:
            pod = self.pod(job)
            said = "The node was low on resource: memory."
            if own_fault:
                said = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
            else:
                _set_condition(pod, "DisruptionTarget", "True", "TerminationByKubelet", said)
            pod["status"] |= {"reason": "Evicted", "message": said}
            _kill_group(self.pid(job))

    def oom_kill(self, job: str) -> None:
        """The kernel kills the agent for its memory."""
        with self.store.lock:
            self._oom.add(self.pod(job)["metadata"]["uid"])
            _kill_group(self.pid(job))

    def reach_deadline(self, job: str) -> None:
        """The pod has run as long as it may."""
        with self.store.lock:
            pod = self.pod(job)
            assert pod["spec"].get("activeDeadlineSeconds"), "it may run for ever"
            said = "Pod was active on the node longer than the specified deadline"
            pod["status"] |= {"reason": "DeadlineExceeded", "message": said}
            os.kill(self.pid(job), signal.SIGTERM)

    def let_go(self, job: str) -> None:
        """Kueue admits a Job."""
        with self.store.lock:
            found = self.store.objects["jobs"][job]
            found["spec"]["suspend"] = False
            self.store.changed(found)

    def suspend(self, job: str) -> None:
        """Kueue takes a Job back: its pod is deleted, and it waits again."""
        with self.store.lock:
            found = self.store.objects["jobs"][job]
            found["spec"]["suspend"] = True
            self.store.changed(found)

    def forget(self, job: str) -> None:
        """The Job has been over for so long that the cluster removes it."""
        with self.store.lock:
            self.store.delete("jobs", job, {"propagationPolicy": "Background"})

    # The loop.

    def _run(self) -> None:
        try:
            while not self._stop.wait(TICK_S):
                with self.store.lock:
                    if not self.is_frozen:
                        self._tick()
        except BaseException as error:
            self._failure = error

    def _tick(self) -> None:
        for pod in list(self.store.objects["pods"].values()):
            self._collect(pod)
            self._schedule(pod)
            self._keep(pod)
        for job in list(self.store.objects["jobs"].values()):
            self._control(job)

    def _collect(self, pod: Object) -> None:
        """What garbage collectors do with pods: those of no Job go; those that were deleted before they had a node are
        over.
        """
        meta = pod["metadata"]
        if _job_name(pod) not in self.store.objects["jobs"]:
            meta.pop("finalizers", None)
            if "deletionTimestamp" not in meta:
                self.store.delete("pods", meta["name"], {})
        if "deletionTimestamp" in meta and not pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            pod["status"]["phase"] = "Failed"
            self.store.changed(pod)
        if "deletionTimestamp" in meta and not meta.get("finalizers") and _is_over(pod):
            self.store.remove("pods", pod)

    def _schedule(self, pod: Object) -> None:
        if pod["status"]["phase"] != "Pending" or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return
        taken = sum(
            _cpus(one)
            for one in self.store.objects["pods"].values()
            if one["spec"].get("nodeName") and not _is_over(one)
        )
        if taken + _cpus(pod) <= self.cpus:
            pod["spec"]["nodeName"] = NODE
            _set_condition(pod, "PodScheduled", "True", "", "")
            pod["status"]["startTime"] = now()
            self.store.changed(pod)
        elif _set_condition(
            pod, "PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."
        ):
            self.store.changed(pod)

    def _keep(self, pod: Object) -> None:
        """What a kubelet does: start, tell to end, kill, and note how a pod has ended."""
        uid = pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName") or _is_over(pod):
            return
        process = self._processes.get(uid)
        if process is None:
            self._begin(pod)
        elif (code := process.poll()) is not None:
            _kill_group(process.pid)
            self._note_end(pod, code)
        elif "deletionTimestamp" in pod["metadata"]:
            grace = pod["metadata"]["deletionGracePeriodSeconds"]
            if uid not in self._told:
                self._told[uid] = time.monotonic() + grace
                process.terminate()
            elif time.monotonic() > self._told[uid]:
                _kill_group(process.pid)

    def _begin(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        if container["image"] == MISSING_IMAGE:
            said = f'Back-off pulling image "{MISSING_IMAGE}"'
            if _set_state(pod, {"waiting": {"reason": "ImagePullBackOff", "message": said}}):
                self.store.changed(pod)
            return
        if "deletionTimestamp" in pod["metadata"]:
            pod["status"]["phase"] = "Failed"
            self.store.changed(pod)
            return
        folder = self.folder / pod["metadata"]["uid"]
        self._processes[pod["metadata"]["uid"]] = self.containers.start(pod["spec"], folder)
        pod["status"]["phase"] = "Running"
        _set_state(pod, {"running": {"startedAt": now()}})
        self.store.changed(pod)

    def _note_end(self, pod: Object, code: int) -> None:
        uid = pod["metadata"]["uid"]
        exit_code = 128 - code if code < 0 else code
        log = (self.folder / uid / "log").read_bytes()[-LOG_BYTES:].decode(errors="replace")
        ended: Object = {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error"}
        if uid in self._oom:
            ended["reason"] = "OOMKilled"
        if exit_code:
            ended["message"] = "\n".join(log.splitlines()[-LOG_LINES:])
        ended |= {"startedAt": pod["status"]["startTime"], "finishedAt": now()}
        _set_state(pod, {"terminated": ended})
        has_failed = exit_code or pod["status"].get("reason") in ("Evicted", "DeadlineExceeded")
        pod["status"]["phase"] = "Failed" if has_failed else "Succeeded"
        self.store.changed(pod)

    def _control(self, job: Object) -> None:
        """What the controller of Jobs does."""
        meta, pods = job["metadata"], self._pods_of(job)
        for pod in pods:
            if _is_over(pod) and TRACKING in pod["metadata"].get("finalizers", ()):
                pod["metadata"]["finalizers"].remove(TRACKING)
                if not job["spec"].get("suspend"):
                    self._count(job, pod)
                self.store.changed(pod)
        if "deletionTimestamp" in meta:
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    self.store.delete("pods", pod["metadata"]["name"], {})
            if not pods:
                self.store.remove("jobs", job)
            return
        if job["spec"].get("suspend"):
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    self.store.delete("pods", pod["metadata"]["name"], {})
            if _set_condition(job, "Suspended", "True", "JobSuspended", "Job suspended"):
                self.store.changed(job)
            return
        if not pods and not _is_done(job):
            self._make_pod(job)

    def _count(self, job: Object, pod: Object) -> None:
        """A pod is over, and so is its Job."""
        done = job["status"]
        if pod["status"]["phase"] == "Succeeded":
            done |= {"succeeded": 1, "completionTime": now()}
            _set_condition(
                job, "SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods"
            )
            _set_condition(job, "Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods")
        else:
            done["failed"] = 1
            reason, said = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            if _matches_policy(job, pod):
                whole = f"{self.store.namespace}/{pod['metadata']['name']}"
                reason, said = (
                    "PodFailurePolicy",
                    f"Pod {whole} has condition DisruptionTarget matching FailJob rule at index 0",
                )
            _set_condition(job, "FailureTarget", "True", reason, said)
            _set_condition(job, "Failed", "True", reason, said)
        self.store.changed(job)

    def _make_pod(self, job: Object) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        if self.pods_quota is not None and len(self.store.objects["pods"]) >= self.pods_quota:
            if not any(one["involvedObject"]["uid"] == meta["uid"] for one in self.store.objects["events"].values()):
                said = f'Error creating: pods "{meta["name"]}-" is forbidden: exceeded quota: agents'
                self._event(job, "FailedCreate", said)
            return
        name = f"{meta['name']}-{os.urandom(3).hex()[:5]}"
        tags = {"batch.kubernetes.io/job-name": meta["name"], "batch.kubernetes.io/controller-uid": meta["uid"]}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        self.store.create(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "labels": {**template["metadata"]["labels"], **tags},
                    "annotations": dict(template["metadata"].get("annotations") or {}),
                    "finalizers": [TRACKING],
                    "ownerReferences": [owner],
                },
                "spec": dict(template["spec"]),
                "status": {"phase": "Pending"},
            },
        )

    def _event(self, one: Object, reason: str, said: str) -> None:
        meta = one["metadata"]
        about = {"kind": one["kind"], "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        name = f"{meta['name']}.{os.urandom(4).hex()}"
        made = {"metadata": {"name": name}, "involvedObject": about, "reason": reason, "message": said}
        self.store.create("events", made | {"type": "Warning"})

    def _pods_of(self, job: Object) -> list[Object]:
        uid = job["metadata"]["uid"]
        return [
            one for one in self.store.objects["pods"].values() if one["metadata"]["ownerReferences"][0]["uid"] == uid
        ]


def _matches_policy(job: Object, pod: Object) -> bool:
    """Whether the policy of a Job fails it for a condition of its pod."""
    has = {one["type"] for one in pod["status"].get("conditions") or () if one["status"] == "True"}
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    return any(
        rule["action"] == "FailJob" and has & {one["type"] for one in rule.get("onPodConditions") or ()}
        for rule in rules
    )


def _job_name(pod: Object) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["name"])


def _is_over(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _is_done(job: Object) -> bool:
    return any(one["type"] in ("Complete", "Failed") for one in job["status"].get("conditions") or ())


def _cpus(pod: Object) -> float:
    (container,) = pod["spec"]["containers"]
    return float(container["resources"]["requests"]["cpu"])


def _set_condition(one: Object, name: str, value: str, reason: str, said: str) -> bool:
    """Returns whether something changed."""
    made: dict[str, Any] = {"type": name, "status": value, "lastTransitionTime": now()}
    made |= ({"reason": reason} if reason else {}) | ({"message": said} if said else {})
    conditions = one["status"].setdefault("conditions", [])
    before = next((each for each in conditions if each["type"] == name), None)
    if before is not None and (before["status"], before.get("reason")) == (value, made.get("reason")):
        return False
    one["status"]["conditions"] = [each for each in conditions if each["type"] != name] + [made]
    return True


def _set_state(pod: Object, state: Object) -> bool:
    """Returns whether something changed."""
    (container,) = pod["spec"]["containers"]
    made = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }
    if pod["status"].get("containerStatuses") == [made]:
        return False
    pod["status"]["containerStatuses"] = [made]
    return True


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
