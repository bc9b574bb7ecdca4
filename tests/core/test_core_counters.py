"""What the counters of a step say to people."""

from __future__ import annotations

from windrow_master.core.counters import MISFIT_LINES_MAX, Counters


def test_misfits_of_many_columns_are_a_few_lines() -> None:
    counters = Counters()
    for number in range(MISFIT_LINES_MAX + 3):
        counters.add_misfits(f"c{number}", 1500, f"line {number}")
    counters.add_misfits("c0", 2, "line 99")
    first, *_, last = lines = Counters.from_json(counters.to_json()).misfit_warnings()
    assert len(lines) == MISFIT_LINES_MAX + 1
    assert '"c0"' in first and "out): 1,502." in first and "line 0" in first
    assert "3 more columns" in last and "4,500" in last


def test_without_misfits_there_is_nothing_to_say() -> None:
    assert Counters().misfit_warnings() == []
