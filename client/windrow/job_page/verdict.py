"""What a job's time went into, in words, and what would make it faster. Pure: from the figures of the report alone.

Worker-time. A worker is prepared first (its node fetches the code, and builds the environment), then started (Python
and imports), and then it is in `init()`. After that, `windrow_master.reports.job_figures` divides its time. `run` is
the part of the useful time that `run()` had; the rest of it is loading, and writing what `run()` returned.

A gain is a share of the time that the job took. Each is an estimate from this job's own figures, of what the time would
have been had only that been different.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from windrow.common.quantities import counted, duration, precise_duration, size
from windrow.common.second_attempts import second_attempts
from windrow.common.status_words import DONE

SUGGESTIONS_MAX = 3
GAIN_MIN = 0.05
"""Less than this share of the time is not worth a suggestion."""
PART_MIN = 0.03
"""Parts below this share of the workers' time are not named."""
TAIL_BUSY = 0.75
"""At the end of a step, from where on fewer than this share of its workers are at work, the others wait for the last
mini-batches."""
ENDED_IN_TAIL_MAX = 3
"""Mini-batches, for each worker, that may end while others wait for the last ones."""
SUGGESTED_FROM_S = 10.0
"""What a shorter job takes says little about the next one."""
PREPARED_LONG_S = 2.0
"""A shorter time goes into the code, not into an environment."""
SHORT_MINI_BATCH_S = 0.02
"""Shorter mini-batches cost more to hand out than to run."""
GOOD_MINI_BATCH_S = 1.0
CPU_LOW = 0.5
"""Below this use of a processor, `run()` mostly waits."""


class Suggestion(NamedTuple):
    """Something that would make the job faster. `gain`: by which share of its time, from 0 to 1."""

    text: str
    gain: float


class Verdict(NamedTuple):
    """The words, and the suggestions: those that save most first."""

    sentences: tuple[str, ...]
    suggestions: tuple[Suggestion, ...]

    def to_dict(self) -> dict[str, Any]:
        """As `windrow job explain --format json` prints it."""
        return {"sentences": list(self.sentences), "suggestions": [one._asdict() for one in self.suggestions]}


class Tail(NamedTuple):
    """The end of a step, where some workers wait for the last mini-batches. `saved_s`: how much sooner it would have
    ended had all of them shared the work.
    """

    seconds: float
    saved_s: float
    workers_waiting: int


def verdict(report: Mapping[str, Any]) -> Verdict:
    """Return what to say of a job. `report`: as `Client.report` gives it."""
    job = report["job"]
    steps = [step for step in report["steps"] if step["figures"] and not step["reused_from"]]
    took_s = job["at_work_s"]
    parts = parts_of(steps)
    total = sum(parts.values())
    if not total or not took_s:
        return Verdict((), ())
    has_ended = job["end_s"] is not None
    # The charts of a job that was retried show the days before that, too: they are too coarse for its end.
    is_whole = has_ended and job["end_s"] - job["create_s"] - took_s < 1.0
    sentences = [_took(job, steps, took_s, has_ended=has_ended), _spent(steps, parts, total)]
    suggestions: list[Suggestion] = []
    for step in steps:
        tail = tail_of(step["figures"]) if is_whole and not step["is_command"] else None
        if tail is not None and tail.saved_s >= GAIN_MIN * took_s:
            sentences.append(_tail_words(step, tail, several=len(report["steps"]) > 1))
        if step["settings"]["speculate"]:
            sentences.append(_second_attempts(step, several=len(report["steps"]) > 1))
        name = f"Step {step['name']}: " if len(report["steps"]) > 1 else ""
        suggestions += _suggestions(step, tail, took_s, name, typed=not job["has_job_file"])
    worth = [one for one in suggestions if one.gain >= GAIN_MIN and took_s >= SUGGESTED_FROM_S]
    worth.sort(key=lambda one: -one.gain)
    return Verdict(tuple(sentences), tuple(worth[:SUGGESTIONS_MAX]))


def starts_of(step: Mapping[str, Any]) -> dict[str, int]:
    """How the workers of a step came to be ready, in µs; all 0 if none has told."""
    names = ("workers", "prepare_us", "start_us", "init_us", "init_max_us")
    return {name: step["starts"].get(name, 0) for name in names}


def parts_of(steps: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The workers' time in µs, by what it went into. Every moment counts once."""
    parts = dict.fromkeys(("prepare", "start", "init", "run", "other", "retried", "lost", "running", "idle"), 0)
    for step in steps:
        starts, spent = starts_of(step), step["figures"]["worker_us"]
        for name in ("prepare", "start", "init"):
            parts[name] += starts[f"{name}_us"]
        run = min(spent["useful"], _run_us(step))
        parts["run"] += run
        parts["other"] += spent["useful"] - run
        for name in ("retried", "lost", "running", "idle"):
            parts[name] += spent[name]
    return parts


def tail_of(figures: Mapping[str, Any]) -> Tail | None:
    """The end of a step where workers wait for its last mini-batches; None if all are at work to the end."""
    series, bin_us = figures["over_time"], figures["bin_us"]
    alive = series["alive"]
    busy = [sum(series[kind][at] for kind in ("useful", "retried", "lost", "running")) for at in range(len(alive))]
    most = max(alive, default=0)
    last = min(len(alive) - 1, int((figures["last_end_us"] - figures["begin_us"]) // bin_us))
    if most < 2 * bin_us or last < 0:
        return None
    # The last bin is rarely full.
    full = [
        min(bin_us, max(1, figures["last_end_us"] - figures["begin_us"] - at * bin_us)) / bin_us
        for at in range(last + 1)
    ]
    first = last + 1
    while first > 0 and busy[first - 1] < TAIL_BUSY * most * full[first - 1]:
        first -= 1
    ended = sum(series["mini_batches"][first : last + 1])
    if first > last or ended > ENDED_IN_TAIL_MAX * most / bin_us:
        return None  # where many end, others were handed out: workers wait between them, not for the last ones
    seconds = (figures["last_end_us"] - figures["begin_us"]) / 1e6 - first * bin_us / 1e6
    idle_us = sum(max(0.0, most * full[at] - busy[at]) for at in range(first, last + 1))
    workers = most / bin_us
    return Tail(seconds, idle_us / 1e6 / workers, round(idle_us / 1e6 / max(seconds, 1e-9)))


# Words


def _took(job: Mapping[str, Any], steps: list[Any], took_s: float, *, has_ended: bool) -> str:
    begun_s = min(step["start_s"] for step in steps) - job["create_s"]
    text = f"The job took {duration(took_s)}" if has_ended else f"The job has been running for {duration(took_s)}"
    if begun_s >= max(1.0, PART_MIN * took_s):
        text += f"; its first mini-batch was handed out after {duration(begun_s)}"
    return f"{text}."


def _spent(steps: list[Any], parts: Mapping[str, int], total: int) -> str:
    starts = [starts_of(step) for step in steps]
    workers = sum(one["workers"] for one in starts)
    names = {
        "run": "run()",
        "other": "loading data and writing rows",
        "init": "init()",
        "start": "starting Python and importing the script",
        "prepare": "fetching the code and building environments",
        "retried": "attempts that failed",
        "lost": "attempts that were lost with their node",
        "running": "attempts that still run",
    }
    told = []
    for name, part in sorted(parts.items(), key=lambda entry: -entry[1]):
        if part < PART_MIN * total or name == "idle":
            continue
        more = f" ({precise_duration(parts['init'] / 1e6 / workers)} a worker)" if name == "init" and workers else ""
        told.append(f"{_percent(part / total)} went into {names[name]}{more}")
    if parts["idle"] >= PART_MIN * total:
        told.append(f"{_percent(parts['idle'] / total)} was idle")
    return f"Of its workers' time, {_listed(told)}."


def _tail_words(step: Mapping[str, Any], tail: Tail, *, several: bool) -> str:
    of = f" of step {step['name']}" if several else ""
    slowest = step["figures"]["slowest"]
    longest = ""
    if slowest:
        one = slowest[0]
        longest = f" The longest, mini-batch {one['mini_batch']}, took {precise_duration(one['elapsed_us'] / 1e6)}."
    return (
        f"For the last {duration(tail.seconds)}{of}, about {counted(tail.workers_waiting, 'worker')} waited for the "
        f"last mini-batches.{longest}"
    )


def _second_attempts(step: Mapping[str, Any], *, several: bool) -> str:
    batches, ended = step["mini_batches"], step["end_s"] is not None
    text = second_attempts(batches["speculated"], batches["speculated_won"], ended=ended)
    return f"Step {step['name']}: {text}." if several else f"{text[0].upper()}{text[1:]}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "nothing is known"


# Suggestions


def _suggestions(
    step: Mapping[str, Any], tail: Tail | None, took_s: float, name: str, *, typed: bool
) -> Iterable[Suggestion]:
    """Everything that would make one step faster, each with its gain. `name`: what each begins with. `typed`: there is
    no job file, and settings are options of the command line.
    """
    figures, starts = step["figures"], starts_of(step)
    workers = max(1.0, max(figures["over_time"]["alive"], default=0) / figures["bin_us"])
    spent = figures["worker_us"]
    found = [
        *_of_size(step, tail, workers, typed=typed),
        *_of_starts(step, starts, workers),
        *_of_failures(step, workers),
        *([] if step["is_command"] else _of_workers(step, workers, typed=typed)),
    ]
    loading_s = (spent["useful"] - min(spent["useful"], _run_us(step))) / 1e6 / workers
    found.append(
        (
            f"Loading data and writing rows takes {duration(loading_s)} of each worker's time: keep the data on a disk "
            "of the node, in fewer and larger files, or return fewer rows.",
            loading_s / 2,
        )
    )
    return [Suggestion(name + text, min(1.0, saved_s / took_s)) for text, saved_s in found if saved_s > 0]


def _of_size(step: Mapping[str, Any], tail: Tail | None, workers: float, *, typed: bool) -> Iterable[tuple[str, float]]:
    """Mini-batches that are too large for an even end, or too small."""
    figures, spent = step["figures"], step["figures"]["worker_us"]
    done = figures["attempts"]["useful"]
    if not done or step["is_command"]:
        return
    mean_s = spent["useful"] / 1e6 / done
    items = max(1.0, step["items"]["ok"] / done)
    wanted = step["settings"]["mini_batch_size"]
    if tail is not None:
        if items >= 2 and not step["settings"]["has_groups"]:
            yield (
                f"Smaller mini-batches: workers waited {duration(tail.saved_s)} each for the last ones, of "
                f"{items:,.0f} items on average. A quarter of the size{_sized(step, wanted, 0.25, typed=typed)} lets "
                "them share the end.",
                tail.saved_s * 0.75,
            )
        elif not step["settings"]["speculate"]:
            yield (
                f"Workers waited {duration(tail.saved_s)} each for the last mini-batches, which cannot be smaller. If "
                "some are slow by chance (a busy disk, a request that hangs), let them run twice: "
                f"{'--speculate' if typed else '--speculate True in program_arguments'}.",
                tail.saved_s / 2,
            )
    between_s = spent["idle"] / 1e6 / workers - (tail.saved_s if tail is not None else 0.0)
    if mean_s < SHORT_MINI_BATCH_S and done >= 20 * workers and not step["settings"]["rate_per_s"]:
        times = GOOD_MINI_BATCH_S / max(mean_s, 1e-6)
        times = min(times, done / (8 * workers))
        if times >= 2:
            yield (
                f"Larger mini-batches: one takes {precise_duration(mean_s)}, and workers wait between them. "
                f"About {times:,.0f} times the size{_sized(step, wanted, times, typed=typed)} leaves little of that.",
                between_s * (1 - 1 / times),
            )
    elif rate := step["settings"]["rate_per_s"]:
        yield (
            f"The rate limit ({rate:g}/s) kept workers idle for {duration(between_s)} each. A higher one, if what the "
            "script calls can take it, is the only thing that helps; fewer workers would do as well as these.",
            between_s,
        )


def _sized(step: Mapping[str, Any], wanted: int | None, times: float, *, typed: bool) -> str:
    """The exact setting, if it is known what the size counts."""
    if wanted is None:
        return ""
    value = max(1, round(wanted * times))
    setting = "--mini-batch-size" if typed else "mini_batch_size:"
    if step["settings"]["size_counts"] == "bytes":
        return f" ({setting} {size(value).replace(' ', '').lower()} instead of {size(wanted)})"
    return f" ({setting} {value} instead of {wanted})"


def _of_starts(step: Mapping[str, Any], starts: Mapping[str, int], workers: float) -> Iterable[tuple[str, float]]:
    count = starts["workers"]
    if not count:
        return
    first = min(1.0, workers / count)
    prepare_s = starts["prepare_us"] / 1e6 / count
    if prepare_s >= PREPARED_LONG_S:
        yield (
            f"Before its workers could start, each node took {duration(prepare_s)} to fetch the code and build the "
            "environment. Environments are kept: the next run with the same list has it already.",
            prepare_s,
        )
    init_s = starts["init_us"] / 1e6 / workers * first
    yield (
        f"init() takes {duration(starts['init_us'] / 1e6 / count)} in each worker. Halve it: keep what it downloads or "
        "converts in a file beside the code, or load less.",
        init_s / 2,
    )
    again = count - workers
    if again >= 1:
        each_s = (starts["start_us"] + starts["init_us"]) / 1e6 / count
        yield (
            f"Workers started {counted(round(again), 'more time')}, after crashes, timeouts or a lack of memory, for "
            f"{duration(each_s)} each. Repair what ends them (`windrow mb list --cause crash`), or run fewer at a time "
            "if memory is short.",
            again * each_s / workers,
        )


def _of_failures(step: Mapping[str, Any], workers: float) -> Iterable[tuple[str, float]]:
    failed_s = step["figures"]["worker_us"]["retried"] / 1e6 / workers
    kinds = [kind for kind in step["failures"] if kind["attempts"]]
    if not failed_s or not kinds:
        return
    most = max(kinds, key=lambda kind: kind["attempts"])
    what = most["error"] or most["cause"].replace("_", " ")
    place = f" ({most['place']})" if most["place"] else ""
    yield (
        f"Attempts that failed took {duration(failed_s)} of each worker's time. The most frequent failure is "
        f"{what}{place}, {counted(most['attempts'], 'time')}.",
        failed_s,
    )


def _of_workers(step: Mapping[str, Any], workers: float, *, typed: bool) -> Iterable[tuple[str, float]]:
    figures = step["figures"]
    useful_us, done = figures["worker_us"]["useful"], figures["attempts"]["useful"]
    if not useful_us or done < 4 * workers or step["settings"]["rate_per_s"]:
        return
    working_s = useful_us / 1e6 / workers
    longest_s = max((one["elapsed_us"] for one in figures["slowest"]), default=0) / 1e6
    cpu = figures["cpu_us"] / useful_us
    nodes = max(1, len(figures["nodes"]) + figures["nodes_left_out"])
    if cpu < CPU_LOW:
        each = round(2 * workers / nodes)
        yield (
            f"run() uses a processor for {_percent(cpu)} of its time. Twice as many workers on each node would "
            f"use it better: {_twice_as_many(step['settings'], each, typed=typed)}, if memory allows.",
            (working_s - longest_s) / 2,
        )


def _twice_as_many(settings: Mapping[str, Any], each: int, *, typed: bool) -> str:
    """By which settings a node runs twice as many workers, which are `each` then."""
    cpus, gpus, memory = (settings[f"{name}_per_worker"] for name in ("cpus", "gpus", "memory"))
    if cpus is None and not gpus and not memory:
        return f"--workers {each}" if typed else f"max_concurrency_per_instance: {each} and --slots {each}"
    # What a worker takes decides how many there are: with half of it, twice as many fit.
    halves = {"cpus_per_worker": (cpus or 1) / 2}
    halves |= {"memory_per_worker": memory // 2} if memory else {}
    halves |= {"gpus_per_worker": gpus / 2} if gpus else {}
    return " and ".join(
        f"--{name.replace('_', '-')} {half:.12g}" if typed else f"{name}: {half:.12g}" for name, half in halves.items()
    )


def _run_us(step: Mapping[str, Any]) -> int:
    """The time in `run()` of attempts whose result counts."""
    found = step["figures"]["durations"].get(DONE)
    return int(found["run"]["total"]) if found else 0
