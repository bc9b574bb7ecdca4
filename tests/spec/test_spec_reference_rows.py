"""Every row of Azure ML's tables of keys and arguments: what it says is what happens.

What a value comes to in detail is in the files beside this one.
"""

from __future__ import annotations

import pytest
from spec_reference_rows import TABLES, Outcome, Refused, Sets
from spec_workspace import STEP as SMALLEST
from spec_workspace import Workspace, changed
from windrow.spec import JobFileError

CASES = [
    pytest.param(changes, outcome, id=f"{table}-{name}-{number}")
    for table, (rows, _) in TABLES.items()
    for name, cases in rows.items()
    for number, (changes, outcome) in enumerate(cases)
]


@pytest.mark.parametrize(("changes", "outcome"), CASES)
def test_a_row_of_the_reference(workspace: Workspace, changes: str, outcome: Outcome) -> None:
    text = workspace.job_of(changed(SMALLEST, changes), "inputs: {n: 7}\n")
    if isinstance(outcome, Refused):
        with pytest.raises(JobFileError) as caught:
            workspace.job(text)
        (problem,) = [one for one in caught.value.problems if one.key == f"jobs.score.{outcome.key}"]
        assert outcome.words in problem.message
        assert problem.file.endswith("job.yml")
        assert problem.line > 0
        return
    step = workspace.job(text).job.steps[0]
    if isinstance(outcome, Sets):
        assert getattr(step, outcome.setting) == outcome.value


@pytest.mark.parametrize("table", TABLES)
def test_no_key_and_no_argument_is_without_a_row(table: str) -> None:
    rows, known = TABLES[table]
    assert set(rows) == known
