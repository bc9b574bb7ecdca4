"""Puts `core.reasons` into words: what holds a step up, and what to do if something can be done."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from windrow.common.failure_kinds import within
from windrow.common.quantities import counted, duration, first_few, size
from windrow.common.worker_phases import PHASE_WORDS
from windrow.spec.settings.pace import rate_words

from windrow_master.core.gathering import HOLD_S
from windrow_master.core.needs import Shortage
from windrow_master.core.reasons import Code, FleetAsk, Gathering, Reason

NAMES_MAX = 5
IDLE_NAMED = 3
FLEETS_NAMED = 3
SILENT_S = 15.0
"""A fleet's program that is silent for longer is named as such: it is heard every second."""
ENGINE_WORDS_MAX = 300


def words_of(reason: Reason, sees: Callable[[str], bool] = lambda project: True) -> str:
    """Return the words for people. `sees`: whether they may know the jobs of a project."""
    return _state_words(reason) + _fleet_words(reason) + _idle_words(reason, sees)


def _fleet_words(reason: Reason) -> str:
    """What fleets do for a step that waits for a node."""
    told = [f" {_ask_words(ask)}" for ask in reason.fleets[:FLEETS_NAMED]]
    if len(reason.fleets) > FLEETS_NAMED:
        told.append(f" {len(reason.fleets) - FLEETS_NAMED:,} more groups of fleets: `windrow fleet list`.")
    return "".join(told)


def _ask_words(ask: FleetAsk) -> str:
    return f"Fleet {ask.fleet} ({ask.provider}, group {ask.group}): {ask_brief(ask)}."


def ask_brief(ask: FleetAsk) -> str:
    """What a group of a fleet does, without its name."""
    parts = []
    if ask.paused:
        by = f" by {ask.paused_by}" if ask.paused_by else ""
        parts.append(f"it was paused{by}, and asks for nothing more (windrow fleet resume {ask.fleet})")
    elif ask.silent_s > SILENT_S:
        since = "since this master started" if math.isinf(ask.silent_s) else f"for {duration(ask.silent_s)}"
        parts.append(f"its program has not been heard {since}; start it (windrow fleet run)")
    if ask.asked:
        says = f", the engine says: {_one_line(ask.engine_says)}" if ask.engine_says else ""
        parts.append(f"{counted(ask.asked, 'agent')} asked for{says}")
    if ask.starting:
        parts.append(f"{counted(ask.starting, 'agent')} starting")
    if ask.why_not_more and not ask.paused:
        parts.append(_one_line(ask.why_not_more))
    return "; ".join(parts) or "no agent asked for"


def _one_line(text: str) -> str:
    """The words of an engine, which may be long, as a part of a sentence."""
    return within(" ".join(text.split()), ENGINE_WORDS_MAX).rstrip(".")


def _idle_words(reason: Reason, sees: Callable[[str], bool]) -> str:
    """Who holds GPUs and does not use them."""
    if not reason.idle_gpus:
        return ""
    told = [
        (f"{one.job_id}/{one.step}, process{one.process_number:03d} " if sees(one.project) else "a worker ")
        + f"on {one.node_id} (project {one.project}, {amount_of_gpus(one.gpus)}, for {duration(one.idle_s)}"
        + ("" if one.is_working else ", without a mini-batch")
        + ")"
        for one in reason.idle_gpus
    ]
    count = counted(len(told), "worker")
    return (
        f" {count} hold{'s' * (len(told) == 1)} GPUs and use{'s' * (len(told) == 1)} less than 5 % of them: "
        f"{first_few(told, IDLE_NAMED)}. Those without a mini-batch end by themselves where their step sets "
        "--idle_gpu_timeout."
    )


def amount_of_gpus(gpus: float) -> str:
    """`1 GPU`, `0.5 GPUs`."""
    return f"{gpus:.3g} GPU{'' if gpus == 1 else 's'}"


def _state_words(reason: Reason) -> str:
    match reason.code:
        case Code.COMPLETED:
            return reason.message or "It is done."
        case Code.FAILED | Code.CANCELLED | Code.SKIPPED:
            return reason.message
        case Code.CANCELLING:
            return f"It is cancelled. Nodes are still ending its workers: {some_of(reason.nodes)}."
        case Code.NOT_ADMITTED:
            return _not_admitted(reason)
        case Code.WAITS_FOR_STEPS:
            steps = [f"{name} ({state.name.lower()})" for name, state in reason.steps]
            return f"It waits for {some_of(steps)}, and begins when they are done."
        case Code.JOB_PAUSED:
            return f"{reason.message}. `windrow job cancel {reason.job_id}` ends it; please report this."
        case Code.MASTER_HELD:
            return "The master hands out no work until a `windrow run` over this state folder asks for it."
        case Code.COMPARING_INPUTS:
            return (
                f"Its inputs have been read for {reason.for_s:.0f} s, to see whether an earlier job has made "
                "the same outputs (is_deterministic, force_rerun). Files that do not change are not read again "
                "next time."
            )
        case Code.VERIFYING_ROWS:
            return (
                f"The rows of earlier steps have been read for {reason.for_s:.0f} s, to verify that they are "
                "what was written."
            )
        case Code.WAITS_FOR_PLANNER:
            return (
                "Its input is divided when its turn comes: as many other inputs are being divided as may be at a time, "
                "in all or of its project."
            )
        case Code.DIVIDING_INPUT:
            return _dividing(reason)
        case Code.BUILDING_ENVIRONMENT:
            return (
                f"Its environment has been building on {some_of(reason.nodes)} for {reason.for_s:.0f} s. A node takes "
                "its work when that is done, and keeps the environment. `windrow job logs` shows what uv says."
            )
        case Code.WORKERS_STARTING | Code.RUNNING | Code.NO_PROGRESS:
            return _running(reason)
        case Code.ENDING_WORKERS:
            return (
                f"All mini-batches are done. Workers are ending on {some_of(reason.nodes)}: shutdown() is "
                "called there, and outputs that go to a store are uploaded."
            )
        case Code.GATHERING_ROWS:
            return reason.message or "All mini-batches are done; the output is being written."
        case Code.NO_NODE | Code.NO_NODE_IN_POOL | Code.NODES_SET_ASIDE | Code.WAITS_FOR_AGENTS:
            return _nowhere(reason)
        case _:
            return _waiting(reason)


def _not_admitted(reason: Reason) -> str:
    if reason.admission is None:
        return "Its job is queued, and nothing of it has begun."
    project, running, queued, number, priority = reason.admission
    verbs = "goes before it is" if running == 1 else "go before it are"
    before = f"{counted(running, 'job')} of project {project} that {verbs} running, and {queued:,} queued"
    raised = f"windrow queue set {project} --admitted-jobs {running + queued + 1}"
    sooner = f"To begin at once: `{raised}` (an admin)."
    if priority is not None:
        moved = f"windrow job update {reason.job_id} --priority {priority}"
        sooner = f"To begin at once: `{moved}`, or `{raised}` (an admin)."
    return (
        f"Its job is queued, and nothing of it has begun: {before}. The queue admits {number:,} at a time, and what "
        f"would get a worker. {sooner}"
    )


def queued_brief(reason: Reason) -> str:
    """Of NOT_ADMITTED, in a few words."""
    if reason.admission is None:
        return "queued"
    _, running, queued, _, _ = reason.admission
    also = f", {queued:,} queued before it" if queued else ""
    return f"queued: {counted(running, 'job')} of its project run{'s' * (running == 1)}{also}"


def _dividing(reason: Reason) -> str:
    if reason.planned:
        return (
            f"The input is still being listed and divided: {counted(reason.planned, 'mini-batch')} so far, and "
            "none of them is left to run. New ones run as they are made."
        )
    return (
        f"The input has been listed and divided for {reason.for_s:.0f} s; there is no mini-batch yet. After "
        f"{reason.limit_s:g} s (--first_task_creation_timeout) the step fails."
    )


def _running(reason: Reason) -> str:
    what = f"{counted(reason.leased, 'mini-batch')} leased on {listed_counts(reason)}"
    what += f", {reason.queued:,} wait" if reason.queued else ", none waits"
    if reason.code == Code.WORKERS_STARTING:
        return f"{what}. No worker is ready yet: {workers_words(reason)}. `windrow job logs` shows what they print."
    oldest = ""
    if reason.oldest is not None:
        mini_batch, node_id, for_s, attempt = reason.oldest
        oldest = f"The oldest lease is mini-batch {mini_batch} on {node_id}, for {for_s:.0f} s (try {attempt})."
    if reason.code == Code.NO_PROGRESS:
        return f"{what}, but no result has arrived for {reason.for_s:.0f} s. {oldest}{_limit(reason)}{_doubts(reason)}"
    more = "" if reason.divided else "; the input is still being divided"
    if reason.dividing_waits:
        more = "; the input is divided further when fewer of this master's mini-batches wait (limit ready_mini_batches)"
    limited = f" The rate limit allows {rate_of(reason)}." if reason.rate_per_s < math.inf and reason.queued else ""
    split = (
        f" In {counted(reason.splitting, 'mini-batch')}, the items that fail are being found: parts run one by one."
        if reason.splitting
        else ""
    )
    return f"{what}{more}. {oldest}{split}{limited}{_doubts(reason)}"


def workers_words(reason: Reason) -> str:
    """What the workers of a step do: `init() for 12 s on 4 workers`."""
    if not reason.at_work:
        return f"workers are starting{for_words(reason.for_s)}"
    return ", ".join(
        f"{PHASE_WORDS[phase]}{for_words(for_s)} on {counted(workers, 'worker')}"
        for phase, workers, for_s in reason.at_work
    )


def rate_of(reason: Reason) -> str:
    """The rate limit of its step."""
    return rate_words(reason.rate_per_s, counts_items=reason.rate_counts_items)


def for_words(seconds: float) -> str:
    """` for 12 s`; empty for less than a second."""
    if seconds < 1:
        return ""
    return f" for {seconds:.0f} s" if seconds < 60 else f" for {duration(seconds)}"


def about(seconds: float) -> str:
    """A time in words, to the second."""
    return "less than a second" if seconds < 1 else f"{seconds:.0f} s"


def _doubts(reason: Reason) -> str:
    told = []
    for node_id, failures, aside in reason.doubts:
        if aside:
            told.append(f" {node_id} is set aside: {aside}")
        else:
            told.append(
                f" {node_id} is held back: {counted(failures, 'mini-batch')} in a row failed there, and are now "
                "tried on other nodes."
            )
    if reason.given_up:
        told.append(f" No worker could be made ready on {some_of(reason.given_up)}; the other nodes do the work.")
    return "".join(told)


def _limit(reason: Reason) -> str:
    return "" if reason.limit_s is None else f" After {reason.limit_s:g} s (--progress_update_timeout) the step fails."


def _nowhere(reason: Reason) -> str:
    """The words for a step whose work no node takes."""
    if reason.code == Code.WAITS_FOR_AGENTS:
        of = f" of the pool {reason.pool!r} (compute)" if reason.pool else ""
        return f"No node{of} is connected: the step waits for an agent of a fleet."
    if reason.code == Code.NO_NODE:
        return "No node is connected: the job waits for one. See `windrow node list`."
    if reason.code == Code.NO_NODE_IN_POOL:
        return (
            f"No node of the pool {reason.pool!r} (compute) is connected: the step waits for one. Connected "
            f"nodes are in the pools {some_of(reason.pools)}. Start one with `windrow agent --pool "
            f"{reason.pool}`, or set another compute."
        )
    states = ", ".join(f"{count} {state}" for state, count in reason.counts)
    why = f"{some_of(reason.nodes)}: {reason.message.rstrip('.')}. " if reason.message else ""
    return f"No node takes work ({states}): the job waits for one. {why}See `windrow node list`."


def _waiting(reason: Reason) -> str:
    """The words for a step whose mini-batches wait while none is leased."""
    waits = f"{counted(reason.queued, 'mini-batch')} wait{'s' * (reason.queued == 1)}"
    match reason.code:
        case Code.NODE_FAULT:
            return f"{waits}. The last attempt failed because of its node: {reason.message}{_limit(reason)}"
        case Code.RETRY_DELAYED:
            when = "" if reason.next_s is None else f" The next try is in {about(reason.next_s)}."
            return f"{waits} a moment before the next try, since their last attempts failed.{when}"
        case Code.RATE_LIMITED:
            following = about(reason.next_s or 0.0)
            return f"{waits} for the rate limit of {rate_of(reason)}. The next one begins in {following}."
        case Code.NODES_DOUBTED:
            return f"{waits}.{_doubts(reason)}"
        case Code.NODES_GAVE_UP:
            return f"{waits}. No worker could be made ready on {some_of(reason.given_up)}: {reason.message}"
        case Code.NODES_ANSWER:
            return f"{waits}; {some_of(reason.nodes)} is being told of the step."
        case Code.NODES_FULL:
            return (
                f"{waits}, and {some_of(reason.nodes)} cannot take more now: results wait to be delivered, or "
                "the disk is full."
            )
        case Code.NODES_TOO_SMALL:
            if reason.short is None:
                return f"{waits}, and no node has what a worker needs."
            return (
                f"{waits}: {need_words(reason.short)}; of {counted(len(reason.nodes), 'node')}, the largest, "
                f"{reason.short.node_id}, has {amount_of(reason.short, reason.short.most)}. The step waits for a node "
                f"that has more. Start an agent on one, or change {reason.short.resource}_per_worker of the step."
            )
        case Code.NODES_END_TOO_SOON if reason.ran_s:
            return (
                f"{waits}: it had run for {duration(reason.ran_s)}, far longer than others of its step, when the end "
                f"of its node cut it off. It runs again where it has twice that time, {duration(reason.wanted_s)}, and "
                f"the node that lives longest, {some_of(reason.nodes)}, ends in {duration(reason.next_s or 0.0)} "
                "(--lifetime). The step waits for a node that lives longer. Start one."
            )
        case Code.NODES_END_TOO_SOON:
            return (
                f"{waits}: with one, a worker is busy for up to {duration(reason.wanted_s)}, and the node that lives "
                f"longest, {some_of(reason.nodes)}, ends in {duration(reason.next_s or 0.0)} (--lifetime). The step "
                "waits for a node that lives longer. Start one, or make mini-batches smaller (mini_batch_size)."
            )
        case Code.GATHERING_NODES if reason.gathering is not None:
            return f"{waits}: {_gathering(reason.gathering)} {_gathering_advice(reason)}".rstrip()
        case Code.PROJECT_LIMIT:
            return f"{waits}, and {_share_words(reason)}"
        case _:
            taken = f"{waits}, but all slots of the nodes are taken by {listed_counts(reason)}."
            if reason.short is not None:
                taken = (
                    f"{waits}: {need_words(reason.short)}; the node with most free, {reason.short.node_id}, has "
                    f"{amount_of(reason.short, reason.short.most)}. The others are taken by {listed_counts(reason)}."
                )
            return f"{taken} {_share_words(reason)}".rstrip()


def _gathering(known: Gathering) -> str:
    begins = f"the step begins on {known.needed:,} nodes at once (min_nodes)"
    if known.able < known.needed:
        return f"{begins}, and {known.able:,} can have its workers."
    if known.rests_s:
        return (
            f"{begins}. It has held places on some of them for {HOLD_S:.0f} s, and has released them; it tries again "
            f"in {about(known.rests_s)}, or as soon as so many are free."
        )
    if known.is_behind:
        return f"{begins}, and another step that does gathers nodes before it."
    if known.entitled is not None and known.entitled < known.needed:
        return f"{begins}, and is entitled to {counted(known.entitled, 'worker')} now."
    if known.nodes >= known.needed:
        return f"{begins}, and {known.ready:,} of them are ready for it. The others prepare its code and environment."
    held = "" if known.held_s is None else f", for {about(known.held_s)}. After {HOLD_S:.0f} s it releases them"
    return f"{begins}, and holds places on {known.nodes:,}{held}."


def _gathering_advice(reason: Reason) -> str:
    known = reason.gathering
    if known is None or known.nodes >= known.needed:
        return ""
    if known.able < known.needed:
        return "Start more agents, or lower min_nodes of the step."
    return _share_words(reason)


def need_words(short: Shortage) -> str:
    """`a worker needs 2 GPUs`."""
    return f"a worker needs {amount_of(short, short.needed)}"


def amount_of(short: Shortage, amount: float) -> str:
    """So much of a resource, with its unit."""
    if short.resource == "memory":
        return f"{size(int(amount))} of memory"
    name = "GPU" if short.resource == "gpus" else "processor"
    return f"{amount:.3g} {name}{'' if amount == 1 else 's'}"


def _share_words(reason: Reason) -> str:
    """Where the project of a step stands, in numbers."""
    share = reason.share
    if share is None:
        return ""
    if share.limit is not None:
        return (
            f"project {share.project} has all {share.held:.3g} of the {share.limit:g} slots that it may have. An admin "
            f"may raise that: windrow queue set {share.project} --limit."
        )
    ahead = f" In it, {some_of(share.ahead)} {'goes' if len(share.ahead) == 1 else 'go'} first." if share.ahead else ""
    return (
        f"Project {share.project} has {share.held:.3g} of {share.total:g} slots, and is entitled to "
        f"{share.fair:.3g}.{ahead} `windrow queue list` shows all projects."
    )


def listed_counts(reason: Reason) -> str:
    """The names that a reason counts, each with its number."""
    return some_of([f"{name} ({count})" for name, count in reason.counts])


def some_of(names: Sequence[str]) -> str:
    """The first of the names, and how many more; `none`."""
    return first_few(names, NAMES_MAX) or "none"
