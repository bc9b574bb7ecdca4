"""The arithmetic of fair shares: water filling, whole workers, and their places."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.sharing.entitlements import Claim, Entitlements, Owed, Owner, advance, entitle
from windrow_master.core.sharing.filling import Share, fill
from windrow_master.core.sharing.placing import Allowance, Crew, Place, place, place_standby

NEAR = 1e-6
FREE = (0.0, 0.0)
UNBOUND = (math.inf, math.inf)


@st.composite
def a_share(draw: st.DrawFn) -> Share:
    profile = [draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])), draw(st.sampled_from([0.0, 0.3, 1.0]))]
    profile[draw(st.integers(0, 1))] = 1.0
    return Share(
        demand=draw(st.floats(0, 3)),
        profile=tuple(profile),
        guaranteed=draw(st.sampled_from([0.0, 0.0, 0.2, 0.7])),
        limit=draw(st.sampled_from([math.inf, math.inf, 0.1, 0.5])),
        weight=draw(st.sampled_from([0.5, 1.0, 2.0, 7.0])),
        rank=(draw(st.sampled_from([-1.0, 0.0, 0.0, 3.0])),),
    )


@given(st.lists(a_share(), min_size=1, max_size=8))
def test_water_fills_what_there_is_and_no_more(shares: list[Share]) -> None:
    filled = fill(shares, (1.0, 1.0))
    used = [sum(at * share.profile[r] for at, share in zip(filled, shares, strict=True)) for r in range(2)]
    assert max(used) <= 1 + NEAR
    for at, share in zip(filled, shares, strict=True):
        assert -NEAR <= at <= share.most + NEAR
        if at < share.most - NEAR:
            full = [r for r in range(2) if used[r] > 1 - NEAR]
            assert any(share.profile[r] > 0 for r in full), "it is short of something of which there is more"


@given(st.lists(a_share(), min_size=1, max_size=8))
def test_what_is_guaranteed_comes_first(shares: list[Share]) -> None:
    promised = [min(share.guaranteed, share.most) for share in shares]
    needed = [sum(at * share.profile[r] for at, share in zip(promised, shares, strict=True)) for r in range(2)]
    filled = fill(shares, (1.0, 1.0))
    for at, promise in zip(filled, promised, strict=True):
        assert at >= promise / max(1.0, *needed) - NEAR


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_beyond_guarantees_it_rises_by_weight(first: float, second: float) -> None:
    shares = [Share(9.0, guaranteed=0.25, weight=first), Share(9.0, weight=second)]
    mine, other = fill(shares, (1.0,))
    assert (mine - 0.25) / first == pytest.approx(other / second)
    assert mine + other == pytest.approx(1.0)


def test_a_higher_rank_drinks_first() -> None:
    assert fill([Share(0.3), Share(0.6, rank=(1.0,)), Share(5.0)], (1.0,)) == pytest.approx([0.2, 0.6, 0.2])


# Whole workers --------------------------------------------------------------------------------------------------------


def a_claim(
    number: int, project: str = "a", demand: int = 1000, held: int = 0, slots: int = 4, **more: object
) -> Claim:
    return Claim(StepId(number), project, demand, held, (1 / slots,), age=(number,), **more)  # type: ignore[arg-type]


def an_owner(name: str, weight: float = 1.0, quota: float = 0.0, limit: float = math.inf, priority: int = 0) -> Owner:
    return Owner(name, (quota,), (limit,), weight, priority)


def over_time(claims: list[Claim], owners: list[Owner], seconds: float) -> tuple[dict[int, float], int]:
    """Worker-seconds of each step, and how often a worker changed hands."""
    owed, by_name = Owed(), {owner.name: owner for owner in owners}
    totals: dict[int, float] = {}
    last: Entitlements | None = None
    held: dict[StepId, int] = {}
    changes = 0
    for _ in range(round(seconds * 10)):
        now = [replace(claim, held=held.get(claim.step_id, 0)) for claim in claims]
        if last is not None:
            advance(owed, now, last, 0.1)
        last = entitle(now, by_name, owed)
        changes += sum(max(0, count - held.get(step_id, 0)) for step_id, count in last.workers.items())
        held = dict(last.workers)
        for step_id, count in held.items():
            totals[step_id] = totals.get(step_id, 0.0) + count * 0.1
    return totals, changes


@pytest.mark.parametrize("slots", [1, 2, 4, 5, 16])
def test_two_to_one_is_two_to_one_over_time_whatever_the_number_of_places(slots: int) -> None:
    claims = [a_claim(1, "a", slots=slots), a_claim(2, "b", slots=slots)]
    totals, changes = over_time(claims, [an_owner("a", 2.0), an_owner("b")], 60.0)
    assert totals[1] / totals[2] == pytest.approx(2.0, rel=0.05)
    assert sum(totals.values()) == pytest.approx(60.0 * slots)
    assert changes <= slots + 30, "a worker has a turn of two seconds at least"


def test_large_workers_have_their_share_over_time_where_what_the_others_leave_is_less_than_one() -> None:
    large = replace(a_claim(2, "b", is_fixed=True), need=(0.3,))
    totals, changes = over_time([a_claim(1, "a", slots=10), large], [an_owner("a"), an_owner("b")], 120.0)
    assert totals[2] * 0.3 == pytest.approx(0.5 * 120.0, rel=0.05), "between one worker and two of them"
    assert changes <= 13 + 60 * 3, "a large worker has a turn of two seconds at least, in the place of three"


@pytest.mark.parametrize("slots", [4, 5, 7, 10, 11, 16])
def test_a_project_keeps_a_worker_for_a_turn_whichever_of_its_steps_has_it(slots: int) -> None:
    claims = [a_claim(number, project, slots=slots) for number, project in enumerate(("a", "a", "b", "c", "c", "c"), 1)]
    owners = {name: an_owner(name) for name in "abc"}
    owed, held, gained_s, had = Owed(), dict[StepId, int](), dict[str, float](), dict[str, int]()
    for tenth in range(3000):
        now = [replace(claim, held=held.get(claim.step_id, 0)) for claim in claims]
        given = entitle(now, owners, owed)
        held = dict(given.workers)
        has = {name: sum(held.get(one.step_id, 0) for one in claims if one.project == name) for name in "abc"}
        for name in "abc":
            if has[name] > had.get(name, 0):
                gained_s[name] = tenth / 10
            elif has[name] < had[name]:
                assert tenth / 10 - gained_s[name] > claims[0].turn_s - 0.15
        had = has
        advance(owed, [replace(claim, held=held.get(claim.step_id, 0)) for claim in claims], given, 0.1)


def test_jobs_of_one_project_take_turns() -> None:
    totals, _ = over_time([a_claim(number) for number in range(10)], [an_owner("a")], 120.0)
    assert max(totals.values()) <= 1.25 * min(totals.values())


def test_a_step_that_is_about_to_end_keeps_its_worker() -> None:
    """Twenty jobs, each of 100 mini-batches of 0.1 s, on four slots."""
    left = dict.fromkeys(range(20), 10.0)
    owed, held, starts = Owed(), dict[StepId, int](), 0
    while left:
        claims = [
            a_claim(number, demand=math.ceil(left_s / 0.1), held=held.get(StepId(number), 0), left_s=left_s)
            for number, left_s in left.items()
        ]
        given = entitle(claims, {"a": an_owner("a")}, owed)
        starts += sum(max(0, count - held.get(step_id, 0)) for step_id, count in given.workers.items())
        held = dict(given.workers)
        advance(owed, [replace(one, held=held.get(one.step_id, 0)) for one in claims], given, 0.1)
        left = {one: left_s - 0.1 * held.get(StepId(one), 0) for one, left_s in left.items()}
        left = {one: left_s for one, left_s in left.items() if left_s > 0.05}
    assert starts <= 20 + 4


def test_a_step_that_does_not_end_takes_turns_although_it_seems_about_to() -> None:
    totals, _ = over_time([a_claim(number, left_s=1.0) for number in range(10)], [an_owner("a")], 240.0)
    assert max(totals.values()) <= 1.25 * min(totals.values())


def test_a_turn_lasts_as_long_as_init_asks_for() -> None:
    claims = [a_claim(1, "a", slots=1, turn_s=20.0), a_claim(2, "b", slots=1, turn_s=20.0)]
    _, changes = over_time(claims, [an_owner("a"), an_owner("b")], 60.0)
    assert 2 <= changes <= 4


def test_what_a_project_cannot_use_goes_to_others_and_comes_back() -> None:
    owners = {"a": an_owner("a"), "b": an_owner("b")}
    assert entitle([a_claim(1, "a"), a_claim(2, "b", 1)], owners, Owed()).workers == {1: 3, 2: 1}
    assert entitle([a_claim(1, "a", held=3), a_claim(2, "b", held=1)], owners, Owed()).workers == {1: 2, 2: 2}


def test_the_limit_of_a_project_holds_also_where_places_are_free() -> None:
    owners = {"a": an_owner("a", limit=0.5)}
    assert entitle([a_claim(1), a_claim(2)], owners, Owed()).workers == {1: 1, 2: 1}


def test_a_priority_of_jobs_holds_within_their_project_alone() -> None:
    owners = {"a": an_owner("a"), "b": an_owner("b")}
    claims = [a_claim(1, "a"), a_claim(2, "a", rank=(9.0,)), a_claim(3, "b")]
    assert entitle(claims, owners, Owed()).workers == {2: 2, 3: 2}


@st.composite
def a_claim_of_any_kind(draw: st.DrawFn) -> Claim:
    return Claim(
        StepId(draw(st.integers(1, 10**6))),
        draw(st.sampled_from("abc")),
        draw(st.sampled_from([0, 1, 3, 50])),
        draw(st.integers(0, 5)),
        (draw(st.sampled_from([0.05, 0.1, 0.5])), draw(st.sampled_from([0.0, 0.02, 0.3]))),
        (float(draw(st.integers(0, 1))),),
        draw(st.sampled_from([1.0, 3.0])),
    )


@given(
    st.lists(a_claim_of_any_kind(), min_size=1, max_size=10, unique_by=lambda claim: claim.step_id),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.0, 0.3]), min_size=3),
    st.sampled_from([math.inf, 0.4]),
)
def test_whole_workers_leave_nothing_that_somebody_could_use(
    claims: list[Claim], quotas: dict[str, float], limit: float
) -> None:
    owners = {name: Owner(name, (quota, quota), (limit, limit)) for name, quota in quotas.items()}
    given = entitle(claims, owners, Owed())
    used = [sum(given.workers.get(claim.step_id, 0) * claim.need[r] for claim in claims) for r in range(2)]
    assert max(used) <= 1 + NEAR
    for name in owners:
        mine = [claim for claim in claims if claim.project == name]
        has = [sum(given.workers.get(claim.step_id, 0) * claim.need[r] for claim in mine) for r in range(2)]
        assert max(has) <= limit + NEAR
        for claim in mine:
            assert given.workers.get(claim.step_id, 0) <= claim.demand
            fits = all(used[r] + claim.need[r] <= 1 - NEAR and has[r] + claim.need[r] <= limit - NEAR for r in range(2))
            assert not fits or given.workers.get(claim.step_id, 0) == claim.demand, "it could have one more"


# Places ---------------------------------------------------------------------------------------------------------------


def some_places(*slots: int) -> dict[NodeId, Place]:
    places = [Place(NodeId(f"n{number}"), float(count), (float(count),)) for number, count in enumerate(slots)]
    return {at.node_id: at for at in places}


def a_crew(number: int, entitled: int, places: dict[NodeId, Place], **on: int) -> Crew:
    """`on`: what it has already."""
    crew = Crew(StepId(number), entitled, (1.0,))
    for at in places.values():
        crew.change(at, on.get(at.node_id, 0), 0.0)
    return crew


def test_workers_are_spread_evenly_and_stay_where_they_are() -> None:
    places = some_places(4, 4, 4)
    crew = a_crew(1, 6, places)
    place([crew], places, 0.0)
    assert crew.on == {"n0": 2, "n1": 2, "n2": 2}
    crew.entitled = 7
    place([crew], places, 1.0)
    assert sorted(crew.on.values()) == [2, 2, 3]
    crew.entitled = 3
    place([crew], places, 2.0)
    assert sum(crew.on.values()) == 7, "nobody else has a use for them"


def test_who_has_more_than_it_is_entitled_to_yields_to_who_lacks_some_and_no_further() -> None:
    places = some_places(4)
    first, second = a_crew(1, 3, places, n0=4), a_crew(2, 2, places)
    place([first, second], places, 0.0)
    assert (first.on, second.on) == ({"n0": 3}, {"n0": 1})
    assert places[NodeId("n0")].workers == {1: 3, 2: 1} and places[NodeId("n0")].room == [0.0]


def test_a_worker_that_has_not_paid_for_its_start_yields_to_what_is_owed_alone() -> None:
    places = some_places(1)
    first, second = a_crew(1, 0, places, n0=1), a_crew(2, 1, places)
    first.pays_s = 10.0
    place([first, second], places, 9.0)
    assert first.on == {"n0": 1}
    second.quota = Allowance([1.0])
    place([first, second], places, 9.0)
    assert second.on == {"n0": 1}


def test_big_needs_are_placed_before_small_ones_that_would_leave_them_fragments() -> None:
    places = some_places(2, 2)
    small, big = a_crew(1, 2, places), Crew(StepId(2), 1, (2.0,))
    place([small, big], places, 0.0)
    assert sum(big.on.values()) == 1 and sum(small.on.values()) == 2


def test_a_big_need_takes_over_what_it_needs_on_one_node() -> None:
    places = some_places(2, 2)
    small, big = a_crew(1, 2, places, n0=2, n1=2), Crew(StepId(2), 1, (2.0,))
    place([small, big], places, 0.0)
    assert sum(big.on.values()) == 1 and sum(small.on.values()) == 2


def test_nodes_that_may_not_or_cannot_do_it_are_left_out() -> None:
    places = some_places(4, 4, 4)
    crew = a_crew(1, 12, places)
    crew.barred, crew.chosen, crew.most_on = {"n0"}, {"n0", "n1"}, 3
    place([crew], places, 0.0)
    assert crew.on == {"n1": 3}


def test_where_nobody_else_has_a_use_for_it_workers_stand_by() -> None:
    places = some_places(2, 2)
    crew = a_crew(1, 1, places)
    place([crew], places, 0.0)
    place_standby([crew], places, 0.0)
    assert crew.on == {"n0": 2, "n1": 2}


def test_more_workers_than_processors_share_these() -> None:
    places = some_places(2, 4)
    crew = Crew(StepId(1), 16, (3 / 8,), bound=8, most_on=8)
    place([crew], places, 0.0)
    assert crew.on == {"n0": 8, "n1": 8}


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.sampled_from([1.0, 2.0, 0.5]), st.lists(st.integers(0, 12), min_size=3, max_size=3)),
        min_size=1,
        max_size=5,
    ),
)
def test_no_node_is_overfilled_and_nobody_lacks_what_is_free(
    slots: list[int], wanted: list[tuple[float, list[int]]]
) -> None:
    places = some_places(*slots)
    crews = [Crew(StepId(number), 0, (need,)) for number, (need, _) in enumerate(wanted, 1)]
    for at in range(3):
        for crew, (_, counts) in zip(crews, wanted, strict=True):
            crew.entitled = counts[at]
        place(crews, places, float(at))
        for node, count in zip(places.values(), slots, strict=True):
            used = sum(crew.on.get(node.node_id, 0) * crew.need[0] for crew in crews)
            assert used <= count + NEAR and node.room[0] == pytest.approx(count - used)
            assert node.workers == {crew.step_id: crew.on[node.node_id] for crew in crews if node.node_id in crew.on}
            assert all(crew.held >= crew.entitled or node.room[0] < crew.need[0] - NEAR for crew in crews)
