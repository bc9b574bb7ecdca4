"""Which deadline a worker has passed: a pure function of its page, so no mini-batch needs a timer."""

from __future__ import annotations

from dataclasses import dataclass

from windrow_agent.workers.page import Look, Phase


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of one step, in seconds. Not the limits of a dry run, which bound its planner."""

    run_s: float
    load_s: float
    """For loading; also for writing what `run()` returned, and for `shutdown()`."""

    @property
    def init_s(self) -> float:
        """The limit for start and `init()` together
        (docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes).
        """
        return 3 * self.run_s + 30


@dataclass(frozen=True, slots=True)
class Overrun:
    """A deadline that has passed: `what` took too long, and the `remedy`. `during_run`: in `run()` itself."""

    phase: Phase
    what: str
    remedy: str
    during_run: bool = False

    def text(self, place: str = "") -> str:
        """The message for the user. `place`: where the script was, if that is known."""
        return f"{self.what} and the process was killed{f' at {place}' if place else ''}. {self.remedy}"


def seconds(value: float) -> str:
    """A duration as a user reads it."""
    return f"{value:g} s"


def due_ns(look: Look, limits: Limits, *, spawned_ns: int, stalled_ns: int = 0) -> int | None:
    """When `judge` will find a deadline passed, if the worker stays in this phase; None if never."""
    phase = look.phase
    if phase in (Phase.NONE, Phase.STARTING, Phase.INIT):
        return spawned_ns + stalled_ns + int(limits.init_s * 1e9)
    limit_s = limits.run_s if phase is Phase.RUNNING else limits.load_s
    if phase is Phase.IDLE:
        return None
    return (look.phase_start_ns or spawned_ns) + stalled_ns + int(limit_s * 1e9)


def judge(look: Look, limits: Limits, *, now_ns: int, spawned_ns: int, stalled_ns: int = 0) -> Overrun | None:
    """The deadline that has passed, if any.

    `spawned_ns`: when the process was started; its page is empty until it writes. `stalled_ns`: how long this whole
    machine stalled within the phase; that does not count. All in nanoseconds of CLOCK_MONOTONIC.
    """
    phase = look.phase
    in_phase_s = (now_ns - (look.phase_start_ns or spawned_ns) - stalled_ns) / 1e9
    if phase in (Phase.NONE, Phase.STARTING, Phase.INIT):
        if (now_ns - spawned_ns - stalled_ns) / 1e9 > limits.init_s:
            what = "init()" if phase is Phase.INIT else "Starting the interpreter and the entry script"
            return Overrun(
                phase,
                f"{what} took longer than {seconds(limits.init_s)} (3 x the run timeout + 30 s)",
                "If init() needs that long, raise retry_settings.timeout",
            )
    elif phase is Phase.LOADING:
        if in_phase_s > limits.load_s:
            return Overrun(
                phase,
                f"Loading the mini-batch took longer than {seconds(limits.load_s)} (--task_overhead_timeout)",
                "Raise that timeout or make mini_batch_size smaller",
            )
    elif phase is Phase.RUNNING:
        if in_phase_s > limits.run_s:
            return Overrun(
                phase,
                f"run() took longer than {seconds(limits.run_s)} (retry_settings.timeout)",
                "Raise the timeout or make mini_batch_size smaller",
                during_run=True,
            )
    elif phase is Phase.RETURNING:
        if in_phase_s > limits.load_s:
            return Overrun(
                phase,
                f"Writing what run() returned took longer than {seconds(limits.load_s)} (--task_overhead_timeout)",
                "Raise that timeout, make mini_batch_size smaller or return less",
            )
    elif phase is Phase.STOPPING and in_phase_s > limits.load_s:
        return Overrun(
            phase,
            f"shutdown() took longer than {seconds(limits.load_s)} (--task_overhead_timeout)",
            "Raise that timeout, or do in run() what takes so long",
        )
    return None
