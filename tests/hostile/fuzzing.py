"""Sends fuzzed conversations to a master, and judges how it took them.

make fuzz MESSAGES=100000
PYTHONPATH=tests python tests/hostile/fuzzing.py --messages 5000 --only JobService/ListJobs --survey
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from besieged import Besieged, FuzzNode, GatedJob, besieged, check_state
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from messages import Corpus, requests
from protocol import RPCS, Rpc
from windrow import Client
from windrow.errors import NotFound, RequestRefused
from windrow.rpc.v1 import job_service_pb2 as jobs_pb
from windrow_agent.link import ANSWERED_EARLY
from windrow_master.identity.needs import NEEDS, Who

ROLES = ("nothing", "wrong", "view", "submit", "operate", "admin", "join", "node")
FAULTS = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
"""How no call may end. UNAVAILABLE: the connection broke off."""
ANSWERS_MAX = 3
"""Of a stream, which may have no end."""
STREAM_S = 0.3
"""How long answers of such a stream are waited for."""
CALL_S = 240.0
"""More than the loop of this process ever stands still, while others are waited for."""
CALLS_AT_ONCE = 12
VOLLEYS = 5
"""Of the same calls, with other messages."""
CALLS_OPEN = 100
"""Most of them are streams that have no end."""
MEMORY_MAX = 500 << 20
KNOWN_ITEMS = 300
LIMITS = [
    f"--limit={limit}"
    for limit in ("open_jobs=40", "uploads=16", "left_uploads=8", "streams_per_client=200", "upload_bytes=1000000000")
]


class Call(NamedTuple):
    """One conversation."""

    rpc: Rpc
    role: str
    messages: list[bytes]
    leaves: bool
    """It is cancelled as soon as all is sent."""

    def __repr__(self) -> str:
        sent = [message if len(message) < 2_000 else message[:500] + b"..." for message in self.messages]
        return f"<{self.role}: {self.rpc.path}{' and leaves' if self.leaves else ''}: {sent}>"


class Outcome(NamedTuple):
    """How a call ended. `code`: None if its caller left."""

    call: Call
    code: grpc.StatusCode | None
    details: str = ""


def fitting_roles(rpc: Rpc) -> list[str]:
    """Mostly those who get through to the service."""
    who = NEEDS[rpc.path].who
    if who == Who.NODE:
        return [*ROLES, *["node"] * 12]
    if who == Who.JOINING:
        return [*ROLES, *["join"] * 12]
    return [*ROLES, "submit", "submit", "admin", "admin", *(["node"] if who == Who.CLIENT_OR_NODE else [])]


def conversations(corpus: Corpus, cards: list[tuple[Rpc, str]]) -> st.SearchStrategy[list[Call]]:
    """One conversation for each call and role."""

    def of(rpc: Rpc, role: str) -> st.SearchStrategy[Call]:
        one = requests(rpc, corpus)
        sent = st.lists(one, max_size=6) if rpc.takes_stream else st.tuples(one).map(list)
        leaves = st.sampled_from([False] * 7 + [True])
        return st.builds(Call, st.just(rpc), st.just(role), sent, leaves)

    return st.tuples(*[of(*card) for card in cards]).map(list)


class Prey:
    """What is there for the taking: jobs, nodes, data of a project of their own, whose names the corpus has."""

    def __init__(self, made: Besieged) -> None:
        self._made = made
        self._job = GatedJob(made.master.data / "prey", 4, "prey")
        self._job.gate.open(100)
        with made.client() as client:
            self._token = client.tokens.create("poacher", "submit", project="prey")[1]
        self.corpus = Corpus()

    def set_up(self) -> None:
        """Make them, and learn all there is to know about them."""
        self._made.start_agent("prey-agent", "prey")
        with self._made.client(self._token) as client:
            self.restore(client)
            client.wait("prey", timeout_s=CALL_S)
        with self._made.client() as client:
            self._learn(client)

    def restore(self, client: Client | None = None) -> None:
        """Submit the job again where somebody has deleted it."""
        if client is None:
            with self._made.client(self._token) as client:
                self.restore(client)
            return
        try:
            client.get("prey")
        except NotFound:
            # Somebody else may have submitted it to another project, or be about to delete it.
            with suppress(RequestRefused):
                client.submit(self._job.file, name="prey")

    def _learn(self, client: Client) -> None:
        """Ask everything that can be asked about them, with every value that was learned before."""
        corpus, metadata = self.corpus, [("authorization", f"Bearer {self._made.master.token('client-token')}")]
        corpus.add_value("job_id", "prey")
        corpus.add_value("request_id", "request")
        corpus.add_value("node_id", FuzzNode.NAME)
        for name, value in (("output", "work.out"), ("path", "logs"), ("name", "thing"), ("version", "1")):
            corpus.add_value(name, value)
        corpus.add_value("node_incarnation", "a" * 32)
        corpus.add_value("digest", bytes(range(32)))
        for name, number in (("kind", 1), ("role", 1), ("generation", 1), ("page_size", 3)):
            corpus.add_value(name, number)
        corpus.add_value("path", str(self._made.master.data / "prey" / "data").encode())
        document = client.connection.channel.unary_unary(
            "/windrow.rpc.v1.JobService/GetJob",
            request_serializer=jobs_pb.GetJobRequest.SerializeToString,
            response_deserializer=jobs_pb.GetJobResponse.FromString,
        )(jobs_pb.GetJobRequest(job_id="prey"), metadata=metadata)
        corpus.add_value("document", document.document)
        for _ in range(2):
            for rpc in RPCS:
                need = NEEDS[rpc.path]
                if need.who in (Who.CLIENT, Who.CLIENT_OR_NODE) and not need.changes and not rpc.takes_stream:
                    request = corpus.filled(rpc)
                    for response in self._answers(client, rpc, request, metadata):
                        corpus.add(request)
                        # Not those who carry the rest: whoever knows their names may remove them.
                        if rpc.name not in ("JobService/ListNodes", "TokenService/ListTokens"):
                            corpus.add(response)
        for name in ("prey-agent", "poacher", "setup"):
            corpus.forget(name)

    @staticmethod
    def _answers(client: Client, rpc: Rpc, request: Any, metadata: list[tuple[str, str]]) -> list[Any]:
        channel = client.connection.channel
        make = channel.unary_stream if rpc.sends_stream else channel.unary_unary
        ask: Any = make(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        try:
            answered = ask(request, metadata=metadata, timeout=5)
            return list(answered) if rpc.sends_stream else [answered]
        except grpc.RpcError:
            return []


class Siege:
    """The master under fire. `fire` may be called as often as one likes."""

    def __init__(self, made: Besieged, prey: Prey) -> None:
        self.made = made
        self.prey = prey
        self.corpus = prey.corpus
        self.sent = 0
        """Messages so far."""
        self.outcomes: Counter[tuple[str, str, str]] = Counter()
        """By method, role and code."""
        self.survey: Counter[str] | None = None
        """What is wrong, where the faults are counted, and no reason to stop."""
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.Future[Outcome]] = set()
        self._metadata: dict[str, list[tuple[str, str]]] = {"nothing": [], "wrong": _bearer("wrong")}
        with made.client() as client:
            for role in ("view", "submit", "operate", "admin"):
                project = "prey" if role in ("view", "submit") else ""
                self._metadata[role] = _bearer(client.tokens.create(f"role-{role}", role, project=project)[1])
        self._metadata["join"] = [*_bearer(made.master.token("join-token")), ("windrow-secret", "7" * 64)]
        self._sync = made.master.channel()
        self._node = FuzzNode(made, self._sync.__enter__())
        self._kept_s = 0.0
        self._memory, self._begun_s = made.memory(), time.monotonic()
        self._channel = self._loop.run_until_complete(self._connect())

    async def _connect(self) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(
            self.made.master.address,
            grpc.ssl_channel_credentials(self.made.master.ca.encode()),
            options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)],
        )

    def close(self) -> None:
        """End all connections."""
        self._loop.run_until_complete(self._end())
        self._loop.close()
        self._sync.__exit__(None, None, None)

    def summary(self) -> str:
        """What was sent, and how it ended, as a table."""
        lines = [f"{count:6,} × {what[:200]}" for what, count in (self.survey or Counter()).most_common()]
        for name in sorted({name for name, _, _ in self.outcomes}):
            codes: Counter[str] = Counter()
            for (of, _, code), count in self.outcomes.items():
                if of == name:
                    codes[code] += count
            lines.append(f"{name:45} " + ", ".join(f"{code} {count:,}" for code, count in codes.most_common()))
        memory = f"memory {self._memory >> 20} -> {self.made.memory() >> 20} MiB"
        lines.append(f"{self.sent:,} messages in {time.monotonic() - self._begun_s:.0f} s; {memory}")
        return "\n".join(lines)

    async def _end(self) -> None:
        for one in self._open:
            one.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._channel.close()

    def fire(self, calls: list[Call]) -> None:
        """Make all calls at once. Raises AssertionError where the master does not take them as it must."""
        if time.monotonic() > self._kept_s:
            self._node.keep()
            self.prey.restore()
            self._kept_s = time.monotonic() + 1.0
        self._metadata["node"] = self._node.metadata
        self.sent += sum(max(1, len(call.messages)) for call in calls)
        self._judge(self._loop.run_until_complete(self._begin(calls)), calls)

    def finish(self) -> None:
        """Wait for the end of all calls, and judge them."""
        while self._open:
            self._judge(self._loop.run_until_complete(self._begin([], at_most=0)), [])

    def _judge(self, outcomes: list[Outcome], calls: list[Call]) -> None:
        for call, code, details in outcomes:
            self.outcomes[call.rpc.name, call.role, "left" if code is None else code.name] += 1
            damaged = code == grpc.StatusCode.DATA_LOSS and not call.rpc.takes_stream
            self._check(code not in FAULTS and not damaged, f"{call.rpc.name}: {code}: {details[:300]}", call)
            self._check(
                code != grpc.StatusCode.DEADLINE_EXCEEDED, f"{call.rpc.name}: no answer within {CALL_S} s", call
            )
        assert self.made.lives(), f"the master ended: {calls}"
        for fault in self.made.faults():
            self._check(False, fault, *calls)
        assert self.made.memory() < MEMORY_MAX, f"the master holds {self.made.memory() >> 20} MiB"

    def _check(self, right: bool, what: str, *calls: Call) -> None:
        if right:
            return
        told = "\n".join([what, *map(repr, calls)])
        assert self.survey is not None, told
        if what not in self.survey:
            print(told[:6000], flush=True)
        self.survey[what] += 1

    async def _begin(self, calls: list[Call], at_most: int = CALLS_OPEN) -> list[Outcome]:
        """Begin calls, and return those that have ended, once no more than `at_most` are open."""
        self._open |= {asyncio.ensure_future(self._one(call)) for call in calls}
        ended: list[Outcome] = []
        while len(self._open) > at_most:
            done, self._open = await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)
            ended += [one.result() for one in done]
        return ended

    async def _one(self, call: Call) -> Outcome:
        rpc, metadata = call.rpc, self._metadata[call.role]
        kind = f"{'stream' if rpc.takes_stream else 'unary'}_{'stream' if rpc.sends_stream else 'unary'}"
        begin: Any = getattr(self._channel, kind)(rpc.path)

        async def sent() -> AsyncIterator[bytes]:
            for message in call.messages:
                yield message

        made = begin(sent() if rpc.takes_stream else call.messages[0], metadata=metadata, timeout=CALL_S)
        try:
            if call.leaves:
                made.cancel()
            elif rpc.sends_stream:
                for _ in range(ANSWERS_MAX):
                    answer = await asyncio.wait_for(made.read(), STREAM_S)
                    if answer is grpc.aio.EOF:
                        break
                else:
                    made.cancel()
            code = await made.code()
        except TimeoutError:
            made.cancel()
            return Outcome(call, None)
        except asyncio.CancelledError:
            return Outcome(call, None)
        except grpc.aio.AioRpcError as error:
            code = error.code()
        details = str(await made.details())
        left = code == grpc.StatusCode.CANCELLED or details == ANSWERED_EARLY
        return Outcome(call, None if left else code, details)


def _bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@contextmanager
def siege(folder: Path) -> Iterator[tuple[Siege, GatedJob]]:
    """A master to fire at, with an honest job that runs meanwhile. At the end, what must hold is checked."""
    with besieged(folder, *LIMITS) as made:
        prey = Prey(made)
        prey.set_up()
        made.start_agent("honest", "honest", slots=2)
        known = GatedJob(made.master.data / "known", KNOWN_ITEMS, "honest")
        with made.client() as client:
            client.submit(known.file, name="known-to-nobody")
        under_fire = Siege(made, prey)
        try:
            yield under_fire, known
        finally:
            under_fire.close()
        known.gate.open(KNOWN_ITEMS)
        with made.client() as client:
            client.wait("known-to-nobody", timeout_s=120)
            assert list(client.results("known-to-nobody")) == known.expected
            (step,) = client.get("known-to-nobody").steps
            assert (step.rows, step.items.ok, step.items.failed) == (KNOWN_ITEMS, KNOWN_ITEMS, 0)
        made.end_agents()
    assert made.master.process.returncode == 0
    assert not made.faults()
    check_state(made)


def fuzz(under_fire: Siege, known: GatedJob, messages: int, rpcs: list[Rpc]) -> None:
    """Send so many messages at least, and every call in every role."""

    def fire(calls: list[Call]) -> None:
        under_fire.fire(calls)
        known.gate.open(min(KNOWN_ITEMS - 2, KNOWN_ITEMS * under_fire.sent // messages))

    volleys = settings(
        max_examples=VOLLEYS,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        print_blob=False,
    )
    cards = [(rpc, role) for rpc in rpcs for role in fitting_roles(rpc)]
    while under_fire.sent < messages:
        # Hypothesis left to choose among all of them would keep to a few.
        random.shuffle(cards)
        for begin in range(0, len(cards), CALLS_AT_ONCE):
            volleys(given(conversations(under_fire.corpus, cards[begin : begin + CALLS_AT_ONCE]))(fire))()
    under_fire.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz a master.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--only", default="", help="methods, as in JobService/ListJobs,AgentService/Work")
    parser.add_argument("--survey", action="store_true", help="go on after a fault, and count them all")
    options = parser.parse_args()
    rpcs = [rpc for rpc in RPCS if not options.only or rpc.name in options.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="windrow-fuzz-") as folder, siege(Path(folder)) as (under_fire, known):
        under_fire.survey = Counter() if options.survey else None
        fuzz(under_fire, known, options.messages, rpcs)
        print(under_fire.summary())
    print("the master lives, its job's output is exact, its state is whole", file=sys.stderr)


if __name__ == "__main__":
    main()
