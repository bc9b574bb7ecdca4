"""Puts `core.reasons` into a few words for a line of a display, beside the name of the step."""

from __future__ import annotations

from windrow.common.quantities import counted, duration, first_few

from windrow_master.core.reasons import Code, Reason
from windrow_master.rpc.reason_words import (
    about,
    amount_of,
    ask_brief,
    for_words,
    need_words,
    queued_brief,
    rate_of,
    some_of,
    workers_words,
)


def brief_of(reason: Reason, *, embedded: bool = False) -> str:
    """What happens or is waited for, in a few words; empty for a step that has ended. `embedded`: the master has one
    agent, which starts with it.
    """
    match reason.code:
        case Code.COMPLETED | Code.SKIPPED | Code.FAILED | Code.CANCELLED:
            return ""
        case Code.CANCELLING | Code.ENDING_WORKERS:
            return f"workers are ending on {some_of(reason.nodes)}"
        case Code.NOT_ADMITTED:
            return queued_brief(reason)
        case Code.WAITS_FOR_STEPS:
            return f"waits for {some_of([name for name, _ in reason.steps])}"
        case Code.JOB_PAUSED:
            return "paused"
        case Code.MASTER_HELD:
            return "waits for a `windrow run`"
        case Code.COMPARING_INPUTS:
            return f"reading its inputs{for_words(reason.for_s)}"
        case Code.VERIFYING_ROWS:
            return f"verifying the rows of earlier steps{for_words(reason.for_s)}"
        case Code.WAITS_FOR_PLANNER:
            return "waits until its input can be listed"
        case Code.DIVIDING_INPUT:
            so_far = f", {counted(reason.planned, 'mini-batch')} so far" if reason.planned else ""
            return f"listing the input{for_words(reason.for_s)}{so_far}"
        case Code.BUILDING_ENVIRONMENT:
            return f"building its environment on {some_of(reason.nodes)}{for_words(reason.for_s)}"
        case Code.WORKERS_STARTING:
            return workers_words(reason)
        case Code.RUNNING | Code.NO_PROGRESS:
            return _running(reason)
        case Code.GATHERING_ROWS:
            return reason.message or "writing the output"
        case Code.NO_NODE if embedded:
            return "the agent is starting"
        case _:
            return _waiting(reason)


def _running(reason: Reason) -> str:
    if reason.code == Code.NO_PROGRESS:
        return f"no result{for_words(reason.for_s)}" + (f": {workers_words(reason)}" if reason.at_work else "")
    if reason.splitting and reason.leased + reason.queued <= reason.splitting:
        return f"finding the items that fail in {counted(reason.splitting, 'mini-batch')}"
    if reason.at_work:
        return workers_words(reason)
    if reason.leased == 1 and reason.oldest is not None:
        return f"running{for_words(reason.oldest.for_s)}"
    lasts = "" if reason.oldest is None else for_words(reason.oldest.for_s)
    oldest = f", the oldest{lasts}" if lasts else ""
    return f"{counted(reason.leased, 'mini-batch')} handed out{oldest}"


def _waiting(reason: Reason) -> str:
    """Of a step of which nothing is leased."""
    match reason.code:
        case Code.NO_NODE:
            return "no node is connected"
        case Code.NO_NODE_IN_POOL:
            return f"no node of the pool {reason.pool!r} is connected"
        case Code.WAITS_FOR_AGENTS:
            asks = [ask for ask in reason.fleets if ask.asked or ask.starting] or reason.fleets
            return (
                f"waits for an agent of fleet {asks[0].fleet}: {ask_brief(asks[0])}" if asks else "waits for an agent"
            )
        case Code.NODES_SET_ASIDE:
            states = ", ".join(f"{count} {state}" for state, count in reason.counts)
            return f"no node takes work ({states})"
        case Code.NODE_FAULT:
            return f"a node failed: {reason.message}"
        case Code.RETRY_DELAYED:
            return "waits for the next try" + ("" if reason.next_s is None else f", in {about(reason.next_s)}")
        case Code.RATE_LIMITED:
            return f"waits for the rate limit of {rate_of(reason)}, {about(reason.next_s or 0.0)} more"
        case Code.NODES_DOUBTED:
            return "nodes where it failed are held back"
        case Code.NODES_GAVE_UP:
            return f"no worker could be made ready on {some_of(reason.given_up)}"
        case Code.NODES_ANSWER:
            return f"{some_of(reason.nodes)} is being told of it"
        case Code.NODES_FULL:
            return f"{some_of(reason.nodes)} takes none of its work at the moment"
        case Code.NODES_TOO_SMALL if reason.short is not None:
            return f"{need_words(reason.short)}; no node has more than {amount_of(reason.short, reason.short.most)}"
        case Code.NODES_END_TOO_SOON:
            return f"a mini-batch takes {duration(reason.wanted_s)}, and no node lives that long"
        case Code.GATHERING_NODES if reason.gathering is not None:
            known = reason.gathering
            return f"begins on {known.needed:,} nodes at once; has {known.nodes:,} of {known.able:,}"
        case Code.PROJECT_LIMIT:
            return "its project has all the slots that it may have"
        case _ if reason.short is not None:
            return f"{need_words(reason.short)}; at most {amount_of(reason.short, reason.short.most)} free on a node"
        case _:
            taken = first_few([f"{name} ({count})" for name, count in reason.counts], 1, "step")
            return f"no free slot: taken by {taken}"
