"""Nodes with a valid join token that lie: nothing of it counts, it is logged, and the output of the job is exact."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from besieged import Besieged, GatedJob, besieged, check_state
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from messages import Corpus, messages
from rogue import Rogue, forged, result_of
from served_tls import wait_until, windrow_of
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as pb
from windrow.rpc.v1 import node_pb2, work_pb2
from windrow.sdk.node import Node
from windrow.sdk.queue import IdleGpu

ITEMS = 12
ACCEPTED, SUPERSEDED, JOB_ENDED, UNKNOWN = (
    work_pb2.VERDICT_ACCEPTED,
    work_pb2.VERDICT_SUPERSEDED,
    work_pb2.VERDICT_JOB_ENDED,
    work_pb2.VERDICT_UNKNOWN,
)
GROWTH_MAX = 400 << 20
"""Bytes of memory that an attack may cost."""
MESSAGES = 1_000
_numbers = itertools.count(1)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Besieged]:
    with besieged(tmp_path / "master") as made:
        made.start_agent("honest", slots=2)
        yield made
        made.end_agents()
    assert made.master.process.returncode == 0
    assert not made.faults()
    check_state(made)


class Attack:
    """A job at which an honest agent and a rogue are at work."""

    def __init__(
        self, made: Besieged, channel: grpc.Channel, items: int = ITEMS, pool: str = "local", rogue_pool: str = ""
    ) -> None:
        self.made, self.channel = made, channel
        self.job_id = f"job-{next(_numbers)}"
        self.job = GatedJob(made.master.data / self.job_id, items, pool)
        with made.client() as client:
            (step,) = client.submit(self.job.file, name=self.job_id).steps
            self.step_id = step.step_id
            wait_until(lambda: client.get(self.job_id).steps[0].mini_batches.total == items, "all is planned")
        self.rogue = Rogue(made, channel, pool=rogue_pool)
        self.rogue.beat_on()
        self.log_length = len(made.master.log())

    def end(self) -> None:
        """The rogue leaves; the job comes to its end."""
        self.rogue.close()
        with self.made.client() as client:
            client.remove_node(self.rogue.name, force=True)
        self.check()

    def check(self) -> None:
        """The job comes to its end, with each row once."""
        self.job.gate.open(len(self.job.names))
        with self.made.client() as client:
            client.wait(self.job_id, timeout_s=120)
            assert list(client.results(self.job_id)) == self.job.expected
            (step,) = client.get(self.job_id).steps
            count = len(self.job.names)
            assert (step.rows, step.items.ok, step.items.failed, step.mini_batches.total) == (count, count, 0, count)
        assert self.made.lives()

    def logged(self, words: str) -> None:
        """The master has said so of the rogue."""
        wait_until(
            lambda: [
                line
                for line in self.made.master.log()[self.log_length :].splitlines()
                if words in line and self.rogue.name in line
            ],
            f"the log tells of the rogue: {words}",
        )


@pytest.fixture
def attack(made: Besieged) -> Iterator[Attack]:
    with made.master.channel() as channel:
        attack = Attack(made, channel)
        attack.rogue.open()
        yield attack
        attack.end()


def held(attack: Attack, lease: work_pb2.Assignment, generation: int = 1) -> pb.HeldLease:
    return pb.HeldLease(
        lease_id=lease.lease_id,
        step_id=attack.step_id,
        mini_batch_index=lease.mini_batch_index,
        generation=generation,
        identity=attack.rogue.specs[attack.step_id].identity,
    )


NOT_HELD = "results were dropped"


def test_a_result_counts_once_however_often_it_comes(attack: Attack) -> None:
    rogue = attack.rogue
    first, second = rogue.take(attack.step_id, 2)[:2]
    # Twice in one message, again in others, with other rows, and on another stream that claims the lease.
    right = result_of(attack.job, first)
    rogue.complete(right, right)
    assert rogue.verdicts[first.lease_id] == [ACCEPTED, SUPERSEDED]
    assert rogue.complete(right) == rogue.complete(forged(first.lease_id)) == [SUPERSEDED]
    assert rogue.complete(result_of(attack.job, second)) == [ACCEPTED]
    rogue.open(held(attack, first), held(attack, second))
    assert rogue.complete(forged(first.lease_id), forged(second.lease_id)) == [ACCEPTED, ACCEPTED]
    assert {first.lease_id, second.lease_id} <= rogue.revoked
    attack.logged(NOT_HELD)


def test_what_a_node_says_of_gpus_is_bounded_and_is_of_steps_that_it_knows(attack: Attack) -> None:
    """What it says is shown: to whoever looks at its queue, job or nodes."""
    rogue = attack.rogue
    rogue.take(attack.step_id, 1)
    nonsense = node_pb2.WorkerGpu(
        places=[2**32 - 1] * 500, share=math.nan, memory_bytes=2**64 - 1, busy_percent=math.inf, idle_ms=2**64 - 1
    )
    gpus = [node_pb2.GpuStatus(device="d" * 5000, model="m" * 5000, busy_percent=-1, trouble="t" * 5000)] * 60
    workers = [
        node_pb2.WorkerStatus(process_number=number, step_id=step_id, gpu=nonsense)
        for number, step_id in enumerate([attack.step_id, 10**9, attack.step_id])
    ]
    usage = node_pb2.NodeUsage(gpus=gpus, gpu_trouble="x" * 9000)
    master, token = attack.made.master, attack.made.master.token("client-token")
    rogue.says = {"node_incarnation": rogue.incarnation, "usage": usage, "workers": workers, "gpu_count": 2**31}
    idle: list[IdleGpu] = []
    nodes: list[Node] = []
    with attack.made.client() as client:

        def shown() -> bool:
            nodes[:] = [node for node in client.list_nodes() if node.node_id == rogue.name and node.gpus]
            idle[:] = client.queues.get("default").idle_gpus
            (reason,) = client.explain(attack.job_id)
            told = "2 workers hold GPUs and use less than 5 % of them" in reason.message
            command = windrow_of(master, "queue", "show", "default", token=token).stdout
            return bool(idle and nodes and told and "GPUs held by workers" in command)

        wait_until(shown, "idle GPUs are shown")
        assert [(one.node_id, one.job_id, one.step) for one in idle] == [(rogue.name, attack.job_id, "work")] * 2
        assert all(math.isfinite(one.gpus) and math.isfinite(one.idle_s) for one in idle)
        (node,) = nodes
        assert len(node.gpus) == 60 and len(node.gpus[0].device) <= 400 and len(node.gpu_trouble) <= 400
        assert node.gpus[0].busy_percent == 0
        use = client.get(attack.job_id).steps[0].gpu_use
        assert use is not None and use.busy_percent == 100 and use.peak_memory_bytes == 2**50


def test_a_lease_is_good_for_the_mini_batch_that_it_was_given_for(attack: Attack) -> None:
    """It is the key of its attempt: two attempts of one key would end the master."""
    rogue = attack.rogue
    (mine,) = rogue.take(attack.step_id, 1)
    assert rogue.complete(result_of(attack.job, mine)) == [ACCEPTED]
    for index in range(ITEMS):
        claim = held(attack, mine)
        claim.mini_batch_index = index
        rogue.open(claim)
        rogue.complete(forged(mine.lease_id))
    rogue.open()


def test_a_lease_of_an_earlier_master_is_good_for_its_own_mini_batch(tmp_path: Path) -> None:
    with besieged(tmp_path) as made, made.master.channel() as channel:
        attack = Attack(made, channel)
        rogue, job = attack.rogue, attack.job
        rogue.open()
        done, kept = rogue.take(attack.step_id, 2)[:2]
        assert rogue.complete(result_of(job, done)) == [ACCEPTED]
        spec = rogue.specs[attack.step_id]
        rogue.fall_silent()
    with made.master.serving(), made.master.channel() as channel:
        rogue = Rogue(made, channel, rogue.name)
        rogue.beat_on()
        rogue.leases, rogue.specs = {}, {attack.step_id: spec}
        attack.rogue = rogue
        claims = [held(attack, done) for _ in range(ITEMS)]
        for index, claim in enumerate(claims):
            claim.mini_batch_index = index
        rogue.open(*claims, held(attack, kept))
        # Of its own mini-batch, the result is known; that of the other lease counts.
        assert rogue.complete(result_of(job, kept), forged(done.lease_id))[0] == ACCEPTED
        assert rogue.revoked == {done.lease_id}
        rogue.open(*claims, *(pb.HeldLease(mini_batch_index=at) for at in range(ITEMS)))
        rogue.complete(forged(kept.lease_id), forged(done.lease_id))
        made.start_agent("honest", slots=2)
        attack.end()
        made.end_agents()
    check_state(made)


def test_results_of_leases_of_others_are_nothing(attack: Attack) -> None:
    rogue = attack.rogue
    (mine,) = rogue.take(attack.step_id, 1)
    others = [mine.lease_id + step for step in (*range(-40, 0), *range(1, 40))]
    assert set(rogue.complete(*map(forged, others))) == {SUPERSEDED}
    rogue.send(released_lease_ids=others)
    for lease_id in others:
        request = pb.UploadRowsRequest(lease_id=lease_id, chunk=b"forged\n")
        assert rogue.refused_upload(request) == errors.LEASE_NOT_LIVE
    # Claimed, they are taken back.
    step = attack.step_id
    claims = [pb.HeldLease(lease_id=one, step_id=step, mini_batch_index=1, generation=1) for one in others]
    rogue.open(*claims)
    assert set(rogue.complete(*map(forged, others))) == {SUPERSEDED}
    wait_until(lambda: rogue.revoked >= set(others), "what is only claimed is taken back")
    attack.logged(NOT_HELD)


def test_nobody_speaks_for_another_incarnation(attack: Attack, made: Besieged) -> None:
    with made.client() as client:
        honest = next(node for node in client.list_nodes() if node.node_id == "honest")
        incarnation = str(honest.to_dict()["node_incarnation"])
    rogue = attack.rogue
    rogue.open(node_id="honest", node_incarnation=incarnation)
    (mine,) = rogue.take(attack.step_id, 1)
    rogue.beat(node_id="honest", node_incarnation=incarnation, workers=[node_pb2.WorkerStatus(step_id=attack.step_id)])
    rogue.send(draining=False, released_lease_ids=[mine.lease_id + 1])
    with made.client() as client:
        honest = next(node for node in client.list_nodes() if node.node_id == "honest")
        assert honest.state == "ready"
    assert rogue.complete(result_of(attack.job, mine)) == [ACCEPTED]


def test_results_of_an_earlier_generation_are_nothing(attack: Attack, made: Besieged) -> None:
    rogue = attack.rogue
    leases = rogue.take(attack.step_id, 2)
    with made.client() as client:
        client.cancel(attack.job_id)
        rogue.send(
            ended_steps=[pb.EndedStep(step_id=attack.step_id)], released_lease_ids=[one.lease_id for one in leases]
        )
        wait_until(lambda: client.get(attack.job_id).state.ended, "the job is cancelled")
        client.retry(attack.job_id)
        stale = [forged(lease.lease_id) for lease in leases]
        assert set(rogue.complete(*stale)) <= {SUPERSEDED, JOB_ENDED}
        rogue.open(*(held(attack, lease) for lease in leases))
        assert set(rogue.complete(*stale)) <= {SUPERSEDED, JOB_ENDED}
        rogue.open(*(held(attack, lease, generation=2) for lease in leases))
        assert set(rogue.complete(*stale)) <= {SUPERSEDED, JOB_ENDED}
        # An answer about workers that have ended belongs to a generation, too.
        unsaved = pb.EndedStep(step_id=attack.step_id, unsaved="all", generation=1, asked_generation=1)
        rogue.send(ended_steps=[unsaved])
    attack.logged(NOT_HELD)


def test_results_after_a_loss_are_nothing(attack: Attack, made: Besieged) -> None:
    rogue = attack.rogue
    leases = rogue.take(attack.step_id, 2)
    rogue.close()
    with made.client() as client:
        wait_until(lambda: rogue.name not in {node.node_id for node in client.list_nodes()}, "the rogue is lost")
    with pytest.raises(grpc.RpcError):
        rogue.beat()
    rogue.join()
    rogue.open(*(held(attack, lease) for lease in leases))
    assert set(rogue.complete(*(forged(lease.lease_id) for lease in leases))) == {SUPERSEDED}
    attack.logged(NOT_HELD)


def test_large_rows_count_once(attack: Attack) -> None:
    rogue = attack.rogue
    first, second = rogue.take(attack.step_id, 2)[:2]
    rows = result_of(attack.job, first).rows
    staged = [rogue.upload(pb.UploadRowsRequest(lease_id=first.lease_id, chunk=rows)) for _ in range(3)]
    assert len({one.staged_segment for one in staged}) == 3
    by_name = [result_of(attack.job, first, rows=b"", staged_segment=one.staged_segment) for one in staged]
    rogue.complete(*by_name, result_of(attack.job, first))
    assert rogue.verdicts[first.lease_id] == [ACCEPTED, SUPERSEDED, SUPERSEDED, SUPERSEDED]
    assert rogue.refused_upload(pb.UploadRowsRequest(lease_id=first.lease_id, chunk=rows)) == errors.LEASE_NOT_LIVE
    # Rows of another lease, or of no upload at all.
    for name in (staged[1].staged_segment, "../windrow.db", f"staged-{second.lease_id}-0-00000000.rows", "/etc/passwd"):
        rogue.complete(result_of(attack.job, second, rows=b"", staged_segment=name))
    too_long = pb.UploadRowsRequest(lease_id=second.lease_id, chunk=bytes(3 << 20))
    assert rogue.refused_upload(too_long) in (errors.REQUEST_INVALID, errors.LEASE_NOT_LIVE)


def test_what_is_said_of_steps_that_were_never_offered_is_nothing(made: Besieged) -> None:
    """By a rogue that is in another pool, and guesses the numbers of steps."""
    with made.master.channel() as channel:
        attack = Attack(made, channel, pool="guarded", rogue_pool="elsewhere")
        rogue, steps = attack.rogue, range(1, attack.step_id + 20)
        rogue.open(step_ids=steps)
        for number in range(1, 30):
            rogue.send(
                worker_failures=[
                    pb.WorkerFailure(step_id=step, cause=work_pb2.CAUSE_INIT_FAILED, message="no", number=number)
                    for step in steps
                ],
                ended_steps=[
                    pb.EndedStep(step_id=step, unsaved="all", shutdown_failures=1, generation=1) for step in steps
                ],
                capacities=[
                    pb.StepCapacity(step_id=step, leases_max=2**32 - 1, workers=1, given_up=number % 2 > 0)
                    for step in steps
                ],
            )
        assert rogue.complete(forged(1)) == [SUPERSEDED]
        assert not rogue.leases and not rogue.specs
        with made.client() as client:
            (step,) = client.get(attack.job_id).steps
            assert not step.failed_attempts
        attack.end()


def test_huge_heartbeats_and_registrations_are_refused_and_not_kept(attack: Attack, made: Besieged) -> None:
    before = made.memory()
    for much in ({"protection": "x" * (30 << 20)}, {"workers": [node_pb2.WorkerStatus()] * 700_000}) * 5:
        with pytest.raises(grpc.RpcError) as caught:
            attack.rogue.beat(**much)
        assert errors.read_failure(caught.value).reason == errors.REQUEST_INVALID
    assert "The request is too large" in made.master.log()[attack.log_length :]
    assert made.memory() < before + GROWTH_MAX
    with made.client() as client:
        assert not [node.protection for node in client.list_nodes() if len(node.protection) > 5000]


@pytest.mark.parametrize(
    "offered",
    [
        {"resources": node_pb2.NodeResources(gpu_count=2**32 - 1)},
        {"resources": node_pb2.NodeResources(slots=2**32 - 1)},
        {"resources": node_pb2.NodeResources(memory_bytes=2**64 - 1)},
        {"resources": node_pb2.NodeResources(cpu_count=2**32 - 1)},
        {"labels": {"pool": ",".join(f"pool{number}" for number in range(200))}},
    ],
    ids=["GPUs", "workers", "memory", "processors", "pools"],
)
def test_a_node_that_offers_what_no_machine_has_is_refused(attack: Attack, offered: dict[str, Any]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        attack.rogue.join(**offered)
    failure = errors.read_failure(caught.value)
    assert failure.reason == errors.NODE_INVALID
    assert "a node has at most" in failure.message or "a node is in at most" in failure.message


def test_what_a_node_says_of_itself_can_be_shown(attack: Attack, made: Besieged) -> None:
    rogue = attack.rogue
    rogue.fall_silent()
    for percent in (math.nan, math.inf, -1.0):
        rogue.beat(
            node_id=rogue.name,
            node_incarnation=rogue.incarnation,
            usage=node_pb2.NodeUsage(cpu_percent=percent, memory_used_bytes=2**64 - 1, disk_free_bytes=2**64 - 1),
            workers=[
                node_pb2.WorkerStatus(
                    process_number=2**32 - 1, step_id=attack.step_id, phase=5, phase_ms=2**64 - 1, rss_kib=2**64 - 1
                )
            ],
            next_heartbeat=Duration(seconds=-(2**63)),
            ca_good_until=Timestamp(seconds=2**62, nanos=-1),
        )
        with made.client() as client:
            (node,) = [node for node in client.list_nodes() if node.node_id == rogue.name]
            client.explain(attack.job_id)
        assert json.dumps(node.to_dict(), allow_nan=False)
        assert 0 <= (node.cpu_percent or 0) <= 100
        assert node.ca_good_until is None


TOO_MANY = 60_000


def test_a_message_with_too_many_parts_ends_its_stream_and_costs_nothing(attack: Attack, made: Besieged) -> None:
    before = made.memory()
    for parts in (
        {"completions": [work_pb2.Completion()] * TOO_MANY},
        {"released_lease_ids": range(1, TOO_MANY)},
        {"ended_steps": [pb.EndedStep()] * TOO_MANY},
        {"hello": pb.WorkHello(held_leases=[pb.HeldLease()] * TOO_MANY)},
        {"hello": pb.WorkHello(step_ids=range(TOO_MANY))},
    ):
        call = attack.rogue.send_only(iter([pb.WorkRequest(**parts)]))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        failure = errors.read_failure(caught.value)
        assert failure.reason == errors.LIMIT_REACHED and "limit message_parts" in failure.message
    with pytest.raises(grpc.RpcError) as caught:
        attack.rogue.beat(workers=[node_pb2.WorkerStatus()] * TOO_MANY)
    assert errors.read_failure(caught.value).reason == errors.LIMIT_REACHED
    assert made.memory() < before + GROWTH_MAX // 4
    assert "limit message_parts" in made.master.log()[attack.log_length :]
    attack.rogue.open()


def test_a_node_that_asks_for_any_number_of_leases_is_told_of_in_the_log(attack: Attack) -> None:
    most = 2**32 - 1
    attack.rogue.send(capacities=[pb.StepCapacity(step_id=attack.step_id, leases_max=most, workers=most)])
    attack.logged("this master's limit leases_per_node")
    attack.logged("this master's limit workers_per_node")


def test_a_node_that_does_not_read_its_answers_is_not_listened_to(attack: Attack, made: Besieged) -> None:
    """It sends results without end, and never takes the answers: they would pile up."""
    before, sent = made.memory(), []
    message = pb.WorkRequest(completions=[work_pb2.Completion(lease_id=1 + one) for one in range(20_000)])

    def requests() -> Iterator[pb.WorkRequest]:
        yield pb.WorkRequest(hello=pb.WorkHello())
        for number in range(MESSAGES):
            sent.append(number)
            yield message

    call = attack.rogue.send_only(requests())
    # Until the master takes no more of it: what it has not answered is bounded.
    seen, still = 0, 0
    while still < 20 and seen < MESSAGES:
        still = still + 1 if seen == len(sent) else 0
        seen = len(sent)
        assert made.memory() < before + GROWTH_MAX
        threading.Event().wait(0.1)
    assert seen < MESSAGES
    call.cancel()


def test_results_of_any_content_leave_the_master_whole(attack: Attack, made: Besieged) -> None:
    """Of leases that the rogue does hold, of a job that is its prey: its job may fail, and nothing else."""
    rogue, corpus = attack.rogue, Corpus()
    with made.master.channel() as channel:
        prey = Attack(made, channel, items=300)
        prey.rogue.open()
        corpus.add(work_pb2.Completion(item_count=1, result_count=1, row_count=1))
        fuzzed = messages(work_pb2.Completion.DESCRIPTOR, corpus)

        @settings(max_examples=150, database=None, deadline=None, suppress_health_check=list(HealthCheck),
                  phases=[Phase.generate])  # fmt: skip
        @given(fuzzed, st.booleans())
        def answer(fill: object, right: bool) -> None:
            fresh = [one for one in prey.rogue.leases.values() if one.lease_id not in prey.rogue.verdicts]
            if not fresh:
                prey.rogue.send(capacities=[pb.StepCapacity(step_id=prey.step_id, leases_max=4, workers=1)])
                return
            completion = result_of(prey.job, fresh[0]) if right else work_pb2.Completion()
            fill(completion)  # type: ignore[operator]
            completion.lease_id = fresh[0].lease_id
            prey.rogue.complete(completion)
            faults = made.faults()
            assert not faults, "\n".join([*faults, str(completion)[:2000]])

        prey.rogue.take(prey.step_id, 4)
        answer()
        with made.client() as client:
            for job in client.list_jobs():
                assert json.dumps(client.report(job.job_id))
                list(client.mini_batches(job.job_id))
            client.cancel(prey.job_id)
            prey.rogue.send(ended_steps=[pb.EndedStep(step_id=prey.step_id)])
            wait_until(lambda: client.get(prey.job_id).state.ended, "the job is cancelled")
        prey.rogue.close()
    assert rogue.complete(forged(12345)) == [SUPERSEDED]
