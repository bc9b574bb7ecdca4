"""Whole workers: how many each step is entitled to, so that over time every project, and every step in it, has its
fair share.

A fair share is seldom a whole number of workers. Each step gets the whole ones; what is left of the capacity goes, one
worker at a time, to who is owed most. What is owed grows while somebody has less than its share, and falls while it
has more, so that the last worker changes hands now and then, and the mean is right. A worker is not taken away for
that before it has paid for its start: `Claim.turn_s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from typing import NamedTuple

from windrow_master.core.ids import StepId
from windrow_master.core.sharing.filling import Share, fill

Vector = tuple[float, ...]
"""One number for each resource: a fraction of the capacity."""

_ROUNDING = 1e-6
_TURNS_OWED_MAX = 2.0
"""No project is owed more than so many turns of one worker, or owes more."""
_TURNS_AMONG_STEPS = 3.0
"""In a project workers are passed on less often: it gains nothing by it but that all its jobs go on. So many turns are
also the most that a step is owed, or owes.
"""
_TURNS_TO_END = 2.9
"""A step that ends within so many turns more keeps its worker for them: to pass it on and back would cost two starts.
Together with `_TURNS_AMONG_STEPS` it is less than what others can be owed more, so that a step that does not end after
all yields.
"""


class Owner(NamedTuple):
    """A project. `quota`: what it is guaranteed of each resource; `limit`: what it never has more of. Its `priority`
    and `weight` are those of what it uses beyond its quota.
    """

    name: str
    quota: Vector
    limit: Vector
    weight: float = 1.0
    priority: int = 0


@dataclass(slots=True, eq=False)
class Claim:
    """A step that has workers, or could use some. `demand`: how many it could use now. `held`: how many it has.
    `need`: what one worker takes of each resource, and `cost` the dominant share of that. `rank`: higher goes first;
    equal ones share by `weight`, and ties go to the lower `age`. `turn_s`: a worker is not passed on earlier for the
    sake of the mean. `is_fixed`: its step says what a worker needs, which may be more than its share of the time.
    `left_s`: how long one worker would take for all that it still has to do; infinite if nobody knows.
    """

    step_id: StepId
    project: str
    demand: int
    held: int
    need: Vector
    rank: tuple[float, ...] = (0.0,)
    weight: float = 1.0
    age: tuple[int, ...] = (0,)
    turn_s: float = 2.0
    is_fixed: bool = False
    left_s: float = math.inf
    cost: float = field(init=False)

    def __post_init__(self) -> None:
        self.cost = max(self.need)


@dataclass(slots=True, eq=False)
class Owed:
    """What projects and steps have had too little of, in dominant share times seconds. Volatile: a new master begins
    with nothing owed.
    """

    projects: dict[str, float] = field(default_factory=dict)
    steps: dict[StepId, float] = field(default_factory=dict)


class Entitlements(NamedTuple):
    """The answer. `projects`, `steps`: fair shares, as dominant shares. `budgets`: what a project may use of each
    resource. `workers`: whole ones; steps without any are not named.
    """

    projects: dict[str, float]
    steps: dict[StepId, float]
    budgets: dict[str, list[float]]
    workers: dict[StepId, int]


def entitle(claims: Sequence[Claim], owners: Mapping[str, Owner], owed: Owed) -> Entitlements:
    """Divide one capacity among claims. Claims of a project that `owners` does not have are ignored."""
    found = _whole(claims, owners, owed, None)
    first = _first_in_turn(claims, found, owed)
    if first is None:
        return found
    # It gets one more worker than the whole ones that it has, and the others what that leaves of theirs.
    count = found.workers.get(first.step_id, 0) + 1
    rest = [replace(claim, demand=0 if claim is first else found.workers.get(claim.step_id, 0)) for claim in claims]
    taken = [count * need for need in first.need]
    left = [max(0.0, 1.0 - at) for at in taken]
    owner = owners[first.project]
    quota, limit = (
        tuple(max(0.0, bound - at) for bound, at in zip(bounds, taken, strict=True))
        for bounds in (owner.quota, owner.limit)
    )
    workers = _whole(rest, {**owners, owner.name: owner._replace(quota=quota, limit=limit)}, owed, left).workers
    workers[first.step_id] = count
    return Entitlements(found.projects, found.steps, found.budgets, workers)


def _first_in_turn(claims: Sequence[Claim], found: Entitlements, owed: Owed) -> Claim | None:
    """Of those whose next worker is larger than what all others would leave, the one whose turn it is, if it is
    anybody's. It has waited until it was owed a turn, and keeps its worker until it is owed nothing.
    """

    def whole(claim: Claim) -> int:
        return found.workers.get(claim.step_id, 0)

    def is_due(claim: Claim) -> bool:
        amount = owed.steps.get(claim.step_id, 0.0)
        return amount >= claim.cost * claim.turn_s or (claim.held > whole(claim) and amount > 0)

    due = [
        claim
        for claim in claims
        if claim.is_fixed
        and claim.demand > whole(claim)
        and found.steps.get(claim.step_id, 0.0) > whole(claim) * claim.cost + _ROUNDING
        and is_due(claim)
    ]
    return min(
        due,
        key=lambda claim: (claim.held <= whole(claim), -owed.steps[claim.step_id] / claim.cost, claim.age),
        default=None,
    )


def _whole(
    claims: Sequence[Claim], owners: Mapping[str, Owner], owed: Owed, capacity: Sequence[float] | None
) -> Entitlements:
    """Whole workers by fair shares of a capacity; None: all of it."""
    fair = fair_shares(claims, owners, capacity)
    divisions = _divide(fair, owners, owed)
    all_of_it = list(capacity or [1.0] * (len(claims[0].need) if claims else 0))
    used = [0.0] * len(all_of_it)
    for one in divisions:
        used = [at + more for at, more in zip(used, one.used, strict=True)]
    _give_rest(divisions, used, all_of_it)
    workers = {step_id: count for one in divisions for step_id, count in one.workers.items() if count}
    return Entitlements(fair.projects, fair.steps, fair.budgets, workers)


class FairShares(NamedTuple):
    """Fair shares, before they become whole workers. `projects`, `steps`: dominant shares; `claims`: by project;
    `budgets`: what a project may use of each resource.
    """

    projects: dict[str, float]
    steps: dict[StepId, float]
    claims: dict[str, list[Claim]]
    budgets: dict[str, list[float]]


def fair_shares(
    claims: Iterable[Claim], owners: Mapping[str, Owner], capacity: Sequence[float] | None = None
) -> FairShares:
    """Fill a capacity in like water: for projects, and in each for its steps. None: all of each resource."""
    by_project: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.project in owners and 0 < claim.cost <= 1 + _ROUNDING:
            by_project.setdefault(claim.project, []).append(claim)
    names = list(by_project)
    shares = [_share_of(owners[name], by_project[name]) for name in names]
    all_of_it = capacity or [1.0] * (len(shares[0].profile) if shares else 0)
    fair = dict(zip(names, fill(shares, all_of_it), strict=True))
    steps: dict[StepId, float] = {}
    budgets: dict[str, list[float]] = {}
    for name, share in zip(names, shares, strict=True):
        mine = by_project[name]
        budgets[name] = budget = [fair[name] * at for at in share.profile]
        for claim, at in zip(mine, fill([_share_in(claim) for claim in mine], budget), strict=True):
            steps[claim.step_id] = at
    return FairShares(fair, steps, by_project, budgets)


def in_line(claims: Sequence[Claim], owners: Mapping[str, Owner], owed: Owed) -> list[StepId]:
    """The steps that could use another worker, in the order in which they get the next ones, as slots come free."""
    divisions = _divide(fair_shares(claims, owners), owners, owed)
    found: list[StepId] = []
    for _, tier in groupby(divisions, key=lambda one: one.urgency(owed)[0]):
        lines = [one.waiting for one in tier]
        found += [claim.step_id for row in zip_longest(*lines) for claim in row if claim is not None]
    return found


def _divide(fair: FairShares, owners: Mapping[str, Owner], owed: Owed) -> list[_Division]:
    """Whole workers of the fair shares, the project first that gets the next one that is left."""
    divisions = [
        _Division(owners[name], fair.budgets[name], mine, fair.steps, owed) for name, mine in fair.claims.items()
    ]
    return sorted(divisions, key=lambda one: one.urgency(owed))


def advance(owed: Owed, claims: Iterable[Claim], given: Entitlements, passed_s: float) -> None:
    """Count time during which the claims held what they hold. Who has all it can use is owed nothing."""
    projects: dict[str, float] = {}
    steps: dict[StepId, float] = {}
    has: dict[str, float] = {}
    most: dict[str, float] = {}
    wants: set[str] = set()
    for claim in claims:
        if claim.project not in given.projects:
            continue
        turn = claim.cost * claim.turn_s
        most[claim.project] = max(most.get(claim.project, 0.0), turn * _TURNS_OWED_MAX)
        has[claim.project] = has.get(claim.project, 0.0) + claim.held * claim.cost
        fair = given.steps.get(claim.step_id, 0.0)
        if claim.demand * claim.cost > fair + _ROUNDING:
            wants.add(claim.project)
            change = (fair - claim.held * claim.cost) * passed_s
            steps[claim.step_id] = _bounded(owed.steps.get(claim.step_id, 0.0) + change, turn * _TURNS_AMONG_STEPS)
    for name in wants:
        change = (given.projects[name] - has[name]) * passed_s
        projects[name] = _bounded(owed.projects.get(name, 0.0) + change, most[name])
    owed.projects, owed.steps = projects, steps


def _bounded(amount: float, bound: float) -> float:
    return max(-bound, min(bound, amount))


def _share_of(owner: Owner, claims: Sequence[Claim]) -> Share:
    """What a project wants: what all its claims use together, as far as there is so much."""
    wanted = [0.0] * len(owner.quota)
    for claim in claims:
        count = min(claim.demand, math.floor(1 / claim.cost + _ROUNDING))
        for r, need in enumerate(claim.need):
            wanted[r] += count * need
    demand = max(wanted)
    if demand <= 0:
        return Share(0.0, tuple(1.0 for _ in wanted))
    profile = tuple(at / demand for at in wanted)
    guaranteed, limit = (
        min(bound[r] / profile[r] for r in range(len(wanted)) if profile[r] > 0) for bound in (owner.quota, owner.limit)
    )
    return Share(demand, profile, guaranteed, limit, owner.weight, (float(owner.priority),))


def _share_in(claim: Claim) -> Share:
    """What a step wants of its project's share."""
    profile = tuple(need / claim.cost for need in claim.need)
    return Share(claim.demand * claim.cost, profile, weight=claim.weight, rank=claim.rank)


class _Division:
    """Whole workers for the steps of one project."""

    def __init__(
        self,
        owner: Owner,
        budget: Sequence[float],
        claims: Sequence[Claim],
        fair_steps: Mapping[StepId, float],
        owed: Owed,
    ) -> None:
        self.owner, self._claims = owner, claims
        self._held = sum(claim.held * claim.cost for claim in claims) - _ROUNDING
        self.workers = {
            claim.step_id: min(claim.demand, math.floor(fair_steps[claim.step_id] / claim.cost + _ROUNDING))
            for claim in claims
        }
        self.used = [
            sum(self.workers[claim.step_id] * claim.need[r] for claim in claims) for r in range(len(owner.quota))
        ]
        self.waiting = sorted(
            (claim for claim in claims if self.workers[claim.step_id] < claim.demand),
            key=lambda claim: _turn(claim, self.workers[claim.step_id], owed),
        )
        """Who gets the project's next worker, in order."""
        given: list[Claim] = []
        left: list[Claim] = []
        for claim in self.waiting:
            (given if self.take(claim, budget) else left).append(claim)
        self.waiting = left + [claim for claim in given if self.workers[claim.step_id] < claim.demand]

    def take(self, claim: Claim, bound: Sequence[float]) -> bool:
        """Give a claim one more worker if the project then uses no more than `bound` of any resource."""
        if any(at + need > most + _ROUNDING for at, need, most in zip(self.used, claim.need, bound, strict=True)):
            return False
        self.workers[claim.step_id] += 1
        self.used = [at + need for at, need in zip(self.used, claim.need, strict=True)]
        return True

    def urgency(self, owed: Owed) -> tuple[float, float, str]:
        """The project with the lowest urgency gets the next worker that is left."""
        amount = owed.projects.get(self.owner.name, 0.0)
        if self.waiting and self._held > sum(self.workers[claim.step_id] * claim.cost for claim in self._claims):
            # It has a worker beyond these already, of whichever step: it keeps it for a turn.
            amount += self.waiting[0].cost * self.waiting[0].turn_s
        return (-self.owner.priority if self._is_over() else -math.inf, -amount, self.owner.name)

    def _is_over(self) -> bool:
        """Whether it has its quota, as far as whole workers go."""
        return any(at + _ROUNDING >= quota for at, quota in zip(self.used, self.owner.quota, strict=True))


def _turn(claim: Claim, whole: int, owed: Owed) -> tuple[tuple[float, ...], float, tuple[int, ...]]:
    amount = owed.steps.get(claim.step_id, 0.0)
    if claim.held > whole:
        ends_soon = claim.left_s <= claim.held * _TURNS_TO_END * claim.turn_s
        amount += (_TURNS_AMONG_STEPS + (_TURNS_TO_END if ends_soon else 0.0)) * claim.cost * claim.turn_s
    return tuple(-at for at in claim.rank), -amount, claim.age


def _give_rest(divisions: Sequence[_Division], used: Sequence[float], all_of_it: Sequence[float]) -> None:
    """Give out what is left, one worker a project and round, to those that can use it."""
    left = [most - at for at, most in zip(used, all_of_it, strict=True)]
    divisions = [one for one in divisions if one.waiting]
    while divisions:
        for one in divisions:
            for at, claim in enumerate(one.waiting):
                fits = all(need <= rest + _ROUNDING for need, rest in zip(claim.need, left, strict=True))
                if fits and one.take(claim, one.owner.limit):
                    left = [rest - need for rest, need in zip(left, claim.need, strict=True)]
                    if one.workers[claim.step_id] >= claim.demand:
                        del one.waiting[at]
                    else:
                        one.waiting.append(one.waiting.pop(at))
                    break
            else:
                one.waiting = []
        divisions = [one for one in divisions if one.waiting]
