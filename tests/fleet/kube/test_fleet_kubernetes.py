"""Agents from Kubernetes: what is asked for, what is seen of it, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kube_api import ALL_RIGHTS, Fault, kube_api
from kube_cluster import DRAINS, PREFIX, STAYS, KubeCluster, until
from kube_engine import MISSING_IMAGE
from windrow.fleet.provider import AgentCommand, Refused, Request, Shape, State, Unreachable
from windrow.fleet.providers.kubernetes import KubernetesProvider
from windrow.fleet.providers.kubernetes.settings import KubernetesSettings

# What is asked for.


def test_the_agent_gets_its_command_its_variables_and_its_files_as_they_are_written(cluster: KubeCluster) -> None:
    cluster.engine.containers.add_secret("windrow-agents", join_token=b"secret")
    provider = cluster.new_provider(secrets={"windrow-agents": "/windrow"})
    script = 'cat /windrow/join-token; echo; echo "$1 $TEXT"; touch "$HOME/here"'
    agent = AgentCommand(("sh", "-c", script, "sh", "$(HOME) $$ costs"), {"TEXT": "$(PATH) $5"}, "/scratch/windrow-x")
    request = cluster.request()._replace(agent=agent)
    provider.submit(request)
    cluster.wait(request.name, State.COMPLETED)
    folder = cluster.engine.folder_of(request.name)
    assert (folder / "log").read_text() == "secret\n$(HOME) $$ costs $(PATH) $5\n"
    assert (folder / "scratch" / "here").exists()


def test_a_name_that_is_asked_for_twice_is_one_job(cluster: KubeCluster) -> None:
    request = cluster.request()
    assert cluster.provider.submit(request) == cluster.new_provider().submit(request) == f"agents/{request.name}"
    assert len(cluster.provider.allocations()) == 1


def test_a_job_of_others_under_that_name_is_not_taken_for_the_allocation(cluster: KubeCluster) -> None:
    request = cluster.request()
    cluster.provider.submit(request)
    with cluster.api.store.lock:
        cluster.api.store.objects["jobs"][request.name]["metadata"]["labels"] = {}
    with pytest.raises(Refused, match="already exists"):
        cluster.provider.submit(request)


def test_what_was_asked_for_is_found_although_the_answer_was_lost(cluster: KubeCluster) -> None:
    request = cluster.request()
    cluster.provider.allocations()
    cluster.api.faults += [Fault(after=True)]
    with pytest.raises(Unreachable, match=f"127.0.0.1:{cluster.api.port} does not answer"):
        cluster.provider.submit(request)
    assert [seen.name for seen in cluster.provider.allocations()] == [request.name]


def test_a_quota_refuses_in_the_words_of_the_api(cluster: KubeCluster) -> None:
    cluster.api.jobs_quota = 1
    cluster.submit()
    with pytest.raises(Refused, match="is forbidden: exceeded quota: agents, requested: count/jobs"):
        cluster.submit()


def test_a_missing_right_refuses_in_the_words_of_the_api(cluster: KubeCluster) -> None:
    cluster.api.rights = ALL_RIGHTS - {("create", "jobs"), ("list", "pods")}
    with pytest.raises(Refused, match='cannot create resource "jobs" in API group "batch"'):
        cluster.submit()
    with pytest.raises(Unreachable, match='cannot list resource "pods"'):
        cluster.provider.allocations()


def test_a_namespace_that_is_not_there_refuses(cluster: KubeCluster) -> None:
    with pytest.raises(Refused, match='namespaces "elsewhere" not found'):
        cluster.new_provider(namespace="elsewhere").submit(cluster.request())


@pytest.mark.parametrize("fault", [Fault(), Fault(429), Fault(500), Fault(503), Fault(302)], ids=str)
def test_an_api_that_is_not_well_has_not_refused(cluster: KubeCluster, fault: Fault) -> None:
    cluster.api.faults += [fault]
    with pytest.raises(Unreachable):
        cluster.submit()
    assert cluster.provider.allocations() == []


def test_an_api_that_is_away_does_not_answer_and_is_found_again(cluster: KubeCluster) -> None:
    name = cluster.started()
    cluster.api.stop()
    with pytest.raises(Unreachable, match="does not answer"):
        cluster.new_provider().allocations()
    cluster.api.start()
    assert cluster.must_see(name).state is State.STARTED


def test_an_api_that_never_answers_is_given_up(cluster: KubeCluster) -> None:
    hangs = cluster.new_provider(timeout_s=1)
    with cluster.api.store.lock, pytest.raises(Unreachable, match="timed out"):
        hangs.allocations()


def test_a_token_that_has_run_out_is_read_anew(cluster: KubeCluster) -> None:
    name = cluster.submit()
    cluster.api.token = "another"
    with pytest.raises(Unreachable, match="Unauthorized"):
        cluster.provider.allocations()
    cluster.api.kubeconfig  # noqa: B018  writes the file
    assert cluster.must_see(name)


def test_without_a_kubeconfig_nobody_answers_and_says_why(cluster: KubeCluster, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no credentials of a cluster that can be used"):
        cluster.new_provider(kubeconfig=str(tmp_path / "none")).allocations()


def test_in_a_pod_its_own_account_and_namespace_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    windrow = str(Path(sys.executable).with_name("windrow"))
    subprocess.run([windrow, "setup", "--folder", str(tmp_path), "--name", "127.0.0.1"], check=True)
    with kube_api(tmp_path, tls_file=tmp_path / "master" / "tls.pem") as api:
        (tmp_path / "namespace").write_text("agents")
        (tmp_path / "token").write_text(api.token)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        # Where every pod has them.
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "agent" / "ca.pem"))
        monkeypatch.setattr("windrow.fleet.providers.kubernetes.api._POD_NAMESPACE", tmp_path / "namespace")
        provider = KubernetesProvider(KubernetesSettings("image"), PREFIX)
        request = Request(f"{PREFIX}x1", Shape(1), None, AgentCommand(("true",), {}))
        assert provider.submit(request) == f"agents/{PREFIX}x1"
        assert [seen.name for seen in provider.allocations()] == [f"{PREFIX}x1"]


# What is seen.


def test_what_waits_for_a_machine_says_so_in_the_words_of_the_scheduler(cluster: KubeCluster) -> None:
    name = cluster.submit(shape=Shape(5))
    until(lambda: cluster.must_see(name).reason, lambda: "it has a reason")
    seen = cluster.must_see(name)
    assert (seen.state, seen.reason) == (
        State.QUEUED,
        "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
    )


def test_an_image_that_cannot_be_had_is_the_reason(cluster: KubeCluster) -> None:
    provider = cluster.new_provider(image=MISSING_IMAGE)
    request = cluster.request()
    provider.submit(request)
    until(lambda: "ImagePullBackOff" in cluster.must_see(request.name).reason, lambda: "the image is not found")
    assert cluster.must_see(request.name).state is State.QUEUED


def test_a_quota_of_pods_shows_in_why(cluster: KubeCluster) -> None:
    cluster.engine.pods_quota = 0
    name = cluster.submit()
    until(lambda: "exceeded quota" in cluster.provider.why(cluster.must_see(name)), lambda: "the quota is told")
    assert cluster.must_see(name).state is State.QUEUED


def test_why_tells_less_without_the_right_to_read_events(cluster: KubeCluster) -> None:
    cluster.api.rights = ALL_RIGHTS - {("list", "events")}
    name = cluster.submit(shape=Shape(5))
    until(lambda: "Insufficient cpu" in cluster.provider.why(cluster.must_see(name)), lambda: "the scheduler is told")


def test_a_queue_of_kueue_decides_when_a_job_starts(cluster: KubeCluster) -> None:
    request = cluster.request()
    cluster.new_provider(queue="team").submit(request)
    until(lambda: cluster.must_see(request.name).reason == "JobSuspended: Job suspended", lambda: "it is suspended")
    assert cluster.must_see(request.name).state is State.QUEUED
    cluster.engine.let_go(request.name)
    cluster.wait(request.name, State.STARTED)


def test_how_an_agent_failed_is_told_with_its_last_words(cluster: KubeCluster) -> None:
    name = cluster.submit(("sh", "-c", "echo the join token is refused; exit 3"))
    seen = cluster.wait(name, State.FAILED)
    assert seen.reason == "Error (exit code 3)"
    assert "the join token is refused" in cluster.provider.why(seen)


def _preempt(cluster: KubeCluster, name: str) -> None:
    cluster.engine.preempt(name)


def _evict(cluster: KubeCluster, name: str) -> None:
    cluster.engine.evict(name)


def _press(cluster: KubeCluster, name: str) -> None:
    cluster.engine.press(name, own_fault=False)


def _fill_disk(cluster: KubeCluster, name: str) -> None:
    cluster.engine.press(name, own_fault=True)


def _oom(cluster: KubeCluster, name: str) -> None:
    cluster.engine.oom_kill(name)


def _expire(cluster: KubeCluster, name: str) -> None:
    cluster.engine.reach_deadline(name)


@pytest.mark.parametrize(
    ("happens", "state", "reason"),
    [
        (_preempt, State.PREEMPTED, "PreemptionByScheduler: default-scheduler: preempting to accommodate"),
        (_evict, State.PREEMPTED, "EvictionByEvictionAPI: Eviction API: evicting"),
        (_press, State.PREEMPTED, "TerminationByKubelet: The node was low on resource: memory."),
        (_fill_disk, State.FAILED, "Evicted: Pod ephemeral local storage usage exceeds the total limit"),
        (_oom, State.FAILED, "OOMKilled (exit code 137)"),
        (_expire, State.EXPIRED, "DeadlineExceeded"),
    ],
    ids=lambda each: each.__name__.strip("_") if callable(each) else None,
)
@pytest.mark.parametrize("arguments", [STAYS, DRAINS], ids=["hard", "drained"])
def test_how_an_allocation_was_ended_is_told_apart(
    cluster: KubeCluster,
    arguments: tuple[str, ...],
    happens: Callable[[KubeCluster, str], None],
    state: State,
    reason: str,
) -> None:
    name = cluster.started(arguments)
    happens(cluster, name)
    until(lambda: (seen := cluster.seen(name)) is None or seen.state.has_ended, lambda: f"{name} has ended")
    seen = cluster.must_see(name)
    if seen.state is State.COMPLETED:
        # Its pod is gone already, and the Job says no more than that it had left well.
        assert arguments is DRAINS and state is State.PREEMPTED
    else:
        assert seen.state is state
        assert seen.reason.startswith(reason) or seen.reason.startswith("PodFailurePolicy: ")


def test_a_job_tells_of_a_preemption_also_when_its_pod_is_gone(cluster: KubeCluster) -> None:
    name = cluster.started()
    cluster.engine.preempt(name)
    until(lambda: not cluster.api.store.objects["pods"], lambda: "the pod is gone")
    seen = cluster.wait(name, State.PREEMPTED)
    assert "has condition DisruptionTarget" in seen.reason
    with cluster.api.store.lock:
        assert not cluster.api.store.objects["pods"], "no second pod takes the name of the first"


def test_while_an_agent_drains_it_has_not_ended(cluster: KubeCluster) -> None:
    gate = cluster.api.folder / "gate"
    script = f"trap 'until [ -e {gate} ]; do sleep 0.02; done; exit 0' TERM; echo begun; while :; do sleep 0.02; done"
    name = cluster.started(("sh", "-c", script))
    until((cluster.engine.folder_of(name) / "log").read_text, lambda: "it has begun")
    assert cluster.provider.cancel(cluster.must_see(name), only_queued=False)
    seen = cluster.must_see(name)
    assert (seen.state, seen.reason) == (State.STARTED, "Terminating")
    assert not cluster.provider.cancel(seen, only_queued=False), "it is being cancelled already"
    gate.touch()
    until(lambda: cluster.seen(name) is None, lambda: "the Job is gone")


def test_a_pod_that_outlives_its_job_is_still_seen(cluster: KubeCluster) -> None:
    gate = cluster.api.folder / "gate"
    script = f"trap 'until [ -e {gate} ]; do sleep 0.02; done; exit 0' TERM; echo begun; while :; do sleep 0.02; done"
    name = cluster.started(("sh", "-c", script))
    until((cluster.engine.folder_of(name) / "log").read_text, lambda: "it has begun")
    cluster.engine.forget(name)
    assert cluster.must_see(name).state is State.STARTED
    gate.touch()
    until(lambda: cluster.seen(name) is None, lambda: "the pod is gone")


def test_a_pod_that_somebody_deletes_is_not_replaced(cluster: KubeCluster) -> None:
    name = cluster.started()
    with cluster.api.store.lock:
        cluster.api.store.delete("pods", cluster.engine.pod(name)["metadata"]["name"], {})
    until(lambda: cluster.must_see(name).state.has_ended, lambda: "it has ended")
    with cluster.api.store.lock:
        assert not [one for one in cluster.api.store.objects["pods"].values() if one["status"]["phase"] == "Running"]


def test_a_job_that_the_cluster_has_forgotten_is_missing(cluster: KubeCluster) -> None:
    name = cluster.submit(("true",))
    seen = cluster.wait(name, State.COMPLETED)
    cluster.engine.forget(name)
    until(lambda: cluster.seen(name) is None, lambda: "it is missing")
    assert not cluster.provider.cancel(seen, only_queued=False)
    assert cluster.provider.why(seen) == ""


def test_a_list_of_many_pages_is_read_to_its_end(cluster: KubeCluster) -> None:
    names = [cluster.submit(shape=Shape(5)) for _ in range(8)]
    assert [seen.name for seen in cluster.provider.allocations()] == sorted(names)


# Only what is queued.


def test_what_waits_is_cancelled_with_its_job(cluster: KubeCluster) -> None:
    name = cluster.submit(shape=Shape(5))
    until(lambda: cluster.must_see(name).reason, lambda: "it waits")
    assert cluster.provider.cancel(cluster.must_see(name), only_queued=True)
    until(lambda: cluster.seen(name) is None, lambda: "it is gone")


def test_a_pod_that_gets_a_node_in_between_is_left(cluster: KubeCluster) -> None:
    name = cluster.submit(shape=Shape(5))
    until(lambda: cluster.must_see(name).reason, lambda: "it waits")

    def schedule(resource: str, deleted: str) -> None:
        if resource == "pods":
            cluster.engine.cpus = 8
            cluster.api.before_delete = lambda *_: None
            cluster.engine._schedule(cluster.engine.pod(name))

    cluster.api.before_delete = schedule
    assert not cluster.provider.cancel(cluster.must_see(name), only_queued=True)
    cluster.wait(name, State.STARTED)


def test_a_job_that_is_let_go_in_between_is_left(cluster: KubeCluster) -> None:
    request = cluster.request()
    cluster.new_provider(queue="team").submit(request)
    until(lambda: cluster.must_see(request.name).reason, lambda: "it is suspended")

    def let_go(resource: str, deleted: str) -> None:
        cluster.api.before_delete = lambda *_: None
        cluster.engine.let_go(request.name)

    cluster.api.before_delete = let_go
    assert not cluster.provider.cancel(cluster.must_see(request.name), only_queued=True)
    cluster.wait(request.name, State.STARTED)


def test_a_job_that_kueue_holds_is_cancelled(cluster: KubeCluster) -> None:
    request = cluster.request()
    cluster.new_provider(queue="team").submit(request)
    until(lambda: cluster.must_see(request.name).reason, lambda: "it is suspended")
    assert cluster.provider.cancel(cluster.must_see(request.name), only_queued=True)
    until(lambda: cluster.seen(request.name) is None, lambda: "it is gone")


def test_a_pod_that_a_node_has_is_left_although_it_does_not_run_yet(cluster: KubeCluster) -> None:
    request = cluster.request()
    cluster.new_provider(image=MISSING_IMAGE).submit(request)
    until(lambda: "ImagePullBackOff" in cluster.must_see(request.name).reason, lambda: "the image is not found")
    assert not cluster.provider.cancel(cluster.must_see(request.name), only_queued=True)
    assert cluster.must_see(request.name).state is State.QUEUED


def test_without_the_right_to_delete_pods_what_waits_is_left(cluster: KubeCluster) -> None:
    cluster.api.rights = ALL_RIGHTS - {("delete", "pods")}
    name = cluster.submit(shape=Shape(5))
    until(lambda: cluster.must_see(name).reason, lambda: "it waits")
    assert not cluster.provider.cancel(cluster.must_see(name), only_queued=True)
    assert cluster.must_see(name).state is State.QUEUED


def test_a_job_of_the_same_name_that_came_later_is_not_cancelled(cluster: KubeCluster) -> None:
    name = cluster.started()
    seen = cluster.must_see(name)

    def replace(resource: str, deleted: str) -> None:
        cluster.api.before_delete = lambda *_: None
        cluster.api.store.objects["jobs"][name]["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"

    cluster.api.before_delete = replace
    assert not cluster.provider.cancel(seen, only_queued=False)


# Without the package.


def test_a_missing_package_is_said_with_what_to_install() -> None:
    script = (
        "import sys\nsys.modules['kubernetes'] = None\n"
        "from importlib import util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'kubernetes' else find(name, *rest)\n"
        "from windrow.fleet.providers import registry\n"
        "from windrow.fleet.providers.kubernetes.settings import KubernetesSettings\n"
        "registry.load('kubernetes').make(KubernetesSettings('image'), 'a-b-')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert "pip install 'windrow[kubernetes]'" in done.stderr
    assert "UsageError" in done.stderr.splitlines()[-1]
