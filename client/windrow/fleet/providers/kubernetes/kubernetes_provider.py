"""The allocations of one group as Jobs of a namespace."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from windrow.fleet.provider import Refused, Request, Seen, State, Unreachable
from windrow.fleet.providers.kubernetes import states
from windrow.fleet.providers.kubernetes.api import Api, ApiError, require_package
from windrow.fleet.providers.kubernetes.manifest import ALLOCATION, job_of, own_labels, selector_of
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

EVENTS_MAX = 20
_CONFLICT, _NOT_FOUND, _FORBIDDEN = 409, 404, 403


class KubernetesProvider:
    """Keeps `windrow.fleet.provider.Provider`."""

    def __init__(self, settings: KubernetesSettings, prefix: str) -> None:
        """Raises UsageError if the package of Kubernetes is not installed."""
        require_package()
        self._settings = settings
        self._prefix = prefix
        self._api = Api(settings)

    def submit(self, request: Request) -> str:
        """Create the Job of an allocation; one that is there already is its Job. Returns its namespace and name."""
        try:
            self._api.call("POST", self._jobs(), body=job_of(self._settings, request))
        except ApiError as error:
            if error.reason != "AlreadyExists" or not self._is_ours(request.name):
                raise Refused(str(error)) from error
        return self._engine_id(request.name)

    def allocations(self) -> Sequence[Seen]:
        """Those of all Jobs of the group, and of pods whose Job was deleted and that have not ended."""
        selector = selector_of(self._prefix)
        try:
            # In this order: see `state_of`.
            pods = _by_name(self._api.list(self._pods(), selector))
            jobs = {name: found[0] for name, found in _by_name(self._api.list(self._jobs(), selector)).items()}
        except ApiError as error:
            raise Unreachable(str(error)) from error
        found = []
        for name in sorted({*jobs, *pods}):
            if not name.startswith(self._prefix):
                continue
            state, reason = states.state_of(jobs.get(name), pods[name])
            if name in jobs or not state.has_ended:
                found.append(Seen(name, self._engine_id(name), state, reason))
        return found

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """Delete a Job. Its pod is told to end, and has its grace period; the Job stays until the pod is gone."""
        try:
            pods = self._pods_of(seen.name)
            job = self._job(seen.name)
            state, _ = states.state_of(job, pods)
            if job is None or states.is_deleted(job) or state.has_ended:
                return False
            if only_queued:
                return state is State.QUEUED and self._delete_waiting(job, pods)
            return self._delete(f"{self._jobs()}/{seen.name}", uid=job["metadata"]["uid"])
        except ApiError as error:
            raise Unreachable(str(error)) from error

    def why(self, seen: Seen) -> str:
        """What the Job, its pod and their events tell."""
        try:
            pods = self._pods_of(seen.name)
            job = self._job(seen.name)
        except ApiError as error:
            raise Unreachable(str(error)) from error
        lines = list(states.told(job, pods))
        # Whoever may not read events still learns the rest.
        with contextlib.suppress(ApiError):
            for one in (job, *pods):
                lines += self._events(one) if one is not None else ()
        return "\n".join(dict.fromkeys(lines))

    def _delete_waiting(self, job: dict[str, Any], pods: Sequence[dict[str, Any]]) -> bool:
        """Delete a Job only if it has not started, in one step with looking whether it has.

        A suspended Job starts by a change of the Job. A pod starts only after the scheduler has changed it: one that
        was deleted before can be given to no node, and its Job makes no other. Once a node has a pod, nobody else knows
        when it starts, so that is left.
        """
        path, meta = f"{self._jobs()}/{job['metadata']['name']}", job["metadata"]
        if not pods:
            # Whether the controller has made a pod meanwhile does not show in a Job that is not suspended.
            return states.is_suspended(job) and self._delete(path, meta["uid"], meta["resourceVersion"])
        if any(states.is_bound(pod) for pod in pods):
            return False
        try:
            for pod in pods:
                found = pod["metadata"]
                if not self._delete(f"{self._pods()}/{found['name']}", found["uid"], found["resourceVersion"]):
                    return False
        except ApiError as error:
            if error.status == _FORBIDDEN:
                return False
            raise
        self._delete(path, meta["uid"])
        return True

    def _delete(self, path: str, uid: str, version: str = "") -> bool:
        """Delete an object if it is still that one; False if it is gone or (with `version`) has changed."""
        preconditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            # A Job stays until its pod is gone.
            "propagationPolicy": "Foreground",
            "preconditions": preconditions,
        }
        try:
            self._api.call("DELETE", path, body=body)
        except ApiError as error:
            if error.status in (_NOT_FOUND, _CONFLICT):
                return False
            raise
        return True

    def _is_ours(self, name: str) -> bool:
        """Whether the Job of that name is that allocation's."""
        try:
            job = self._job(name)
        except ApiError as error:
            raise Unreachable(str(error)) from error
        labels = {} if job is None else job["metadata"].get("labels") or {}
        return own_labels(name).items() <= labels.items()

    def _job(self, name: str) -> dict[str, Any] | None:
        try:
            return self._api.call("GET", f"{self._jobs()}/{name}")
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _pods_of(self, name: str) -> list[dict[str, Any]]:
        return self._api.list(self._pods(), f"{ALLOCATION}={name}")

    def _events(self, one: dict[str, Any]) -> list[str]:
        """What happened to an object, as far as the cluster remembers."""
        query = {"fieldSelector": f"involvedObject.uid={one['metadata']['uid']}", "limit": str(EVENTS_MAX)}
        answer = self._api.call("GET", f"/api/v1/namespaces/{self._api.namespace}/events", query)
        events = answer.get("items") or []
        return [f"{event.get('reason', '')}: {event.get('message', '')}" for event in events]

    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._api.namespace}/jobs"

    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._api.namespace}/pods"

    def _engine_id(self, name: str) -> str:
        """As `kubectl --namespace NAMESPACE get job NAME` finds it."""
        return f"{self._api.namespace}/{name}"


def _by_name(objects: Sequence[dict[str, Any]]) -> defaultdict[str, list[dict[str, Any]]]:
    """Objects by the allocation whose label they have."""
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in objects:
        found[(one["metadata"].get("labels") or {}).get(ALLOCATION, "")].append(one)
    return found
