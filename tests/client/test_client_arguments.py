"""Arguments of the Python API: what is wrong is told by its name, at the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import windrow
from client_workspace import Workspace

FRAME = pd.DataFrame({"n": [1, 2]})


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (
            FRAME,
            'DataFrame, of which the columns would be taken, not the rows. Give items.to_dict("records"), or the path',
        ),
        (
            pa.Table.from_pandas(FRAME),
            "Table, of which the columns would be taken, not the rows. Give items.to_pylist()",
        ),
        ({"a": 1}, "items is a dict, of which only the keys would be taken. Give list(items.items())"),
        (b"text", "items is bytes, of which each byte would be an item"),
        (5, "items=5: it must be a list or another iterable"),
        ("nope", "give a list to have it as an item"),
    ],
)
def test_what_is_no_list_of_items_is_refused(tmp_path: Path, items: Any, expected: str) -> None:
    with pytest.raises(windrow.UsageError) as raised:
        windrow.map(len, items, state=tmp_path / "state")
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"timeout": 1.5}, "timeout=1.5: it must be a whole number of seconds from 1 to"),
        ({"max_retries": -1}, "max_retries=-1: it must be a whole number from 0"),
        ({"retry_delay": -1}, "retry_delay=-1: it must be a number of seconds up to 60"),
        ({"retry_delay": "1"}, "retry_delay='1': it must be a number of seconds up to 60"),
        ({"workers": "2"}, "workers='2': it must be a whole number from 1"),
        ({"workers": 2.0}, "workers=2.0: it must be a whole number from 1"),
        ({"workers": 0}, "workers=0: it must be a whole number from 1"),
        ({"mini_batch_size": 0}, "mini_batch_size=0: it must be a whole number"),
        ({"mini_batch_size": "many"}, "mini_batch_size='many': it must be a whole number"),
        ({"rate_limit": 20}, 'rate_limit=20: it must be a number of items per s, min or h, such as "20/s"'),
        ({"on_progress": 5}, "on_progress=5: it must be a function"),
        ({"output": 5}, "output=5: it must be a path"),
        ({"output": "rows.xlsx"}, 'output rows.xlsx: the suffix ".xlsx" is not supported'),
        ({"python": "no-python"}, "'no-python' (given by python=) does not exist. Choose another one with python=PATH"),
        ({"state": __file__}, f"{__file__} is a file; state must be a folder"),
    ],
)
def test_wrong_arguments_of_map_are_told_by_name(tmp_path: Path, given: dict[str, Any], expected: str) -> None:
    with pytest.raises(windrow.WindrowError) as raised:
        windrow.map(len, ["a"], **{"state": tmp_path / "state", **given})
    assert expected in str(raised.value)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"sets": "jobs.score.mini_batch_size=2"}, "it must be a list of texts: sets=['jobs.score.mini_batch_size=2']"),
        ({"slots": 0}, "slots=0: it must be a whole number from 1"),
        ({"on_progress": 5}, "on_progress=5: it must be a function"),
        ({"environments": "none"}, "environments='none': it must be one of 'build', 'own'"),
        ({"code_change": "yes"}, "code_change='yes': it must be one of 'ask', 'rerun', 'mix'"),
        ({"datastores": {"a": "nowhere"}}, "datastores: a=nowhere: write NAME=PATH with a folder that exists"),
        ({"since": 5}, "5 is not a job. Give its id"),
        ({"path": 5}, "path=5: it must be a path"),
    ],
)
def test_wrong_arguments_of_run_are_told_by_name(tmp_path: Path, given: dict[str, Any], expected: str) -> None:
    with pytest.raises(windrow.UsageError) as raised:
        windrow.run(**{"path": tmp_path / "job.yml", "state": tmp_path / "state", **given})
    assert expected in str(raised.value)
    assert "--" not in str(raised.value)


def test_calls_take_jobs_and_a_closed_client_says_so(workspace: Workspace) -> None:
    workspace.write(["a", "b"])
    run = windrow.run(workspace.job_file, state=workspace.state)
    with windrow.Client(state=workspace.state) as client:
        assert client.wait(run.job) == client.get(run.job) == client.get(run.job.job_id)
        assert list(client.results(run.job)) == list(run.results())
        assert len(list(client.mini_batches(run.job))) == 2
        log = client.logs(run.job)[0]
        assert len(b"".join(client.read_log(run.job, log.path))) == log.length
        with pytest.raises(windrow.UsageError, match="5 is not a job"):
            client.wait(5)  # type: ignore[arg-type]
        with pytest.raises(windrow.UsageError, match="it must be a list of texts"):
            client.submit(workspace.job_file, sets="name=other")
        with pytest.raises(windrow.UsageError, match="it must be a list of texts"):
            client.download(run.job, outputs="rows")
    for call in (lambda: client.get(run.job), lambda: next(client.list_jobs()), lambda: next(client.progress(run.job))):
        with pytest.raises(windrow.UsageError, match="This client is closed"):
            call()
