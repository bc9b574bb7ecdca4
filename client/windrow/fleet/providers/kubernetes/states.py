"""What a Job of Kubernetes and its pod mean for an allocation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windrow.fleet.provider import State

Object = Mapping[str, Any]
"""An object as the API gives it."""
REASON_MAX = 300
_TAKEN_AWAY = ("Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost")
"""Reasons of pods that clusters before 1.26 gave without the condition DisruptionTarget."""
_ENDED = ("Succeeded", "Failed")


def state_of(job: Object | None, pods: Sequence[Object]) -> tuple[State, str]:
    """The state of an allocation, and why it is in it. `job`: None if it is gone, and only its pods are left.

    Pods have to be read before the Job: a pod that is gone by then has left its end in the Job.
    """
    pod = _latest(pods)
    ended = condition(job, "Complete") or condition(job, "Failed")
    if ended is not None:
        return _well(pod) if ended["type"] == "Complete" else _badly(ended, pod)
    if pod is not None and _phase(pod) in _ENDED:
        if is_deleted(job):
            return State.CANCELLED, "the Job was deleted"
        return _well(pod) if _phase(pod) == "Succeeded" else _badly(None, pod)
    if pod is not None and _phase(pod) != "Pending":
        return State.STARTED, _why_it_leaves(pod)
    if is_deleted(job) and (pod is None or not is_bound(pod)):
        return State.CANCELLED, "the Job was deleted"
    failing = condition(job, "FailureTarget")
    if failing is not None and pod is None:
        return _badly(failing, None)
    return State.QUEUED, _one_line(_why_it_waits(job, pod))


def told(job: Object | None, pods: Sequence[Object]) -> Iterator[str]:
    """All that Job and pods say of themselves."""
    for one in (job, *pods):
        for found in (one or {}).get("status", {}).get("conditions") or ():
            if found.get("message"):
                yield f"{found['type']}={found['status']}, {_words(found)}"
    for pod in pods:
        status = pod.get("status", {})
        if status.get("message"):
            yield _words(status)
        for container in status.get("containerStatuses") or ():
            for seen in (container.get("state") or {}).values():
                if words := _words(seen):
                    yield words
                if "exitCode" in seen:
                    yield f"exit code {seen['exitCode']}"


def condition(one: Object | None, name: str) -> Object | None:
    """A condition of an object if it is true."""
    found = (one or {}).get("status", {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == name and each.get("status") == "True"), None)


def is_deleted(one: Object | None) -> bool:
    """Whether an object is gone, or is being deleted."""
    return one is None or bool(one["metadata"].get("deletionTimestamp"))


def is_bound(pod: Object) -> bool:
    """Whether the scheduler has given a pod to a node, which may have started it."""
    return bool(pod.get("spec", {}).get("nodeName"))


def is_suspended(job: Object) -> bool:
    """Whether a Job has to be let go by another (Kueue) before it has a pod."""
    return bool(job.get("spec", {}).get("suspend"))


def _latest(pods: Sequence[Object]) -> Object | None:
    """The pod that tells: one that has not ended if there is any, else the last."""
    by_age = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
    live = [pod for pod in by_age if _phase(pod) not in _ENDED]
    chosen = live or by_age
    return chosen[-1] if chosen else None


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def _well(pod: Object | None) -> tuple[State, str]:
    """An agent that was told to leave, and did so in time, has been taken away all the same."""
    disruption = condition(pod, "DisruptionTarget")
    return (State.COMPLETED, "") if disruption is None else (State.PREEMPTED, _one_line(_words(disruption)))


def _badly(of_job: Object | None, pod: Object | None) -> tuple[State, str]:
    status = (pod or {}).get("status", {})
    disruption = condition(pod, "DisruptionTarget")
    if disruption is not None:
        return State.PREEMPTED, _one_line(_words(disruption))
    if status.get("reason") in _TAKEN_AWAY:
        return State.PREEMPTED, _one_line(_words(status))
    of_job = of_job or {}
    if of_job.get("reason") == "PodFailurePolicy":
        # There is one rule, that of disruptions.
        return State.PREEMPTED, _one_line(_words(of_job))
    if "DeadlineExceeded" in (of_job.get("reason"), status.get("reason")):
        return State.EXPIRED, "DeadlineExceeded"
    if status.get("reason"):
        return State.FAILED, _one_line(_words(status))
    if pod is not None and is_deleted(pod):
        return State.CANCELLED, "the pod was deleted"
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            return State.FAILED, _one_line(f"{ended.get('reason') or 'Error'} (exit code {ended.get('exitCode')})")
    return State.FAILED, _one_line(_words(of_job))


def _why_it_leaves(pod: Object) -> str:
    """Why an agent that runs will soon not; "": nothing says so."""
    disruption = condition(pod, "DisruptionTarget")
    if disruption is not None:
        return _one_line(_words(disruption))
    if _phase(pod) == "Unknown":
        return _one_line(_words(pod["status"]) or "its node does not answer")
    return "Terminating" if is_deleted(pod) else ""


def _why_it_waits(job: Object | None, pod: Object | None) -> str:
    if pod is None:
        suspended = condition(job, "Suspended")
        if suspended is not None:
            return _words(suspended)
        return "Suspended" if job is not None and is_suspended(job) else ""
    if is_deleted(pod):
        return "Terminating"
    for container in pod.get("status", {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return _words(waiting)
    for found in pod.get("status", {}).get("conditions") or ():
        if found.get("type") == "PodScheduled" and found.get("status") == "False":
            return _words(found)
    return "ContainerCreating" if is_bound(pod) else ""


def _words(said: Object) -> str:
    """A reason with its message."""
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    return f"{reason}: {message}" if reason and message else reason or message


def _one_line(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= REASON_MAX else line[: REASON_MAX - 1] + "…"
