"""Jobs in notebooks: what is shown, and that it is safe."""

from __future__ import annotations

import inspect
import textwrap
from html.parser import HTMLParser
from typing import Any

import pytest
import windrow
from client_workspace import DEADLINE_S, Workspace
from windrow.common.failure_kinds import FailureKind
from windrow.sdk.job import ItemCounts, MiniBatchCounts, Step

INTERRUPTED = """\
import os, signal, time
def slow(x):
    time.sleep(0.1)
def interrupt(job):
    if job.mini_batches.leased:
        os.kill(os.getpid(), signal.SIGINT)
windrow.map(slow, range(600), workers=1, mini_batch_size=1, on_progress=interrupt)
"""


class Page(HTMLParser):
    """The tags, attributes and text of a piece of HTML; fails if tags do not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_job_of_a_hostile_script_is_shown_as_text() -> None:
    bad = "<script>alert('x')</script><img src=x onerror=\"y\">&'"
    kind = FailureKind("exception", bad, bad, 1, 1, 1, 2, 0, bad, bad, bad, 1)
    step = Step(
        bad,
        "failed",
        mini_batches=MiniBatchCounts(4, 0, 0, 3, 1),
        items=ItemCounts(8, 6, 2),
        failure_kinds=(kind, kind, kind, kind),
    )
    job: Any = windrow.Job(bad, bad, windrow.JobState.FAILED, bad, (step,), warnings=(bad, bad, bad, bad, bad))
    page = Page(job._repr_html_())
    assert {*page.tags} <= {"div", "b", "code", "ul", "li"}
    assert {name for name, _ in page.attributes} == {"class", "style", "role", "aria-label"}
    assert f"✗ Failed6 of 8 items ok, 2 failed · 4 of 4 mini-batches done{bad}" in page.text
    assert f"{bad}: 2 items in 1 mini-batch failed with {bad} ({bad})" in page.text
    assert "1 more kind of failures" in page.text
    assert page.text.count(f"Warning: {bad}") == 3 and "2 more warnings" in page.text
    assert "windrow job report" in page.text
    styles = " ".join(value or "" for name, value in page.attributes if name == "style")
    assert "currentColor" in styles and "width:75.00%" in styles and "width:25.00%" in styles
    assert "#" not in styles and "rgb" not in styles


def test_a_job_that_has_just_begun_is_shown(workspace: Workspace) -> None:
    workspace.write(["a", "b"])
    seen: list[windrow.Job] = []
    run: Any = windrow.run(workspace.job_file, state=workspace.state, on_progress=seen.append)
    for moment in seen:
        shown: Any = moment
        assert "width:" in shown._repr_html_()
    queued: Any = windrow.Job("j", "", windrow.JobState.QUEUED)
    assert "… Queuednothing is counted yet" in Page(queued._repr_html_()).text
    text = Page(run._repr_html_()).text
    assert "✓ Completed2 of 2 items ok · 2 of 2 mini-batches done · 2 rows" in text
    assert text.endswith(f"Rows: {workspace.rows}")


def test_a_notebook_shows_one_card_that_grows(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name, value in {"HOME": str(workspace.folder), "IPYTHONDIR": str(workspace.folder / "ipython")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WINDROW_MASTER", raising=False)
    # One worker: the first item is done before the second one fails the job.
    workspace.write(["a", "raise"], error_threshold=0, workers=1)
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("import windrow"),
            nbformat.v4.new_code_cell("windrow.run('job.yml')"),
            nbformat.v4.new_code_cell("windrow.map(len, ['a', 'bb'], progress=False)"),
            nbformat.v4.new_code_cell("open('t.csv', 'w').write('v\\n' + '1\\n' * 2000 + 'oops\\n')\nprint(1)"),
            nbformat.v4.new_code_cell("len(windrow.map(lambda row: row['v'], 't.csv'))"),
            nbformat.v4.new_code_cell(INTERRUPTED),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    kernel = nbclient.NotebookClient(
        notebook, timeout=DEADLINE_S, allow_errors=True, resources={"metadata": {"path": str(workspace.folder)}}
    )
    kernel.execute()
    outputs = [cell.outputs for cell in notebook.cells]
    card, error = outputs[1]
    assert card.output_type == "display_data"
    page = Page(card.data["text/html"])
    assert "✗ Failed1 of 2 items ok, 1 failed" in page.text and "ValueError (score.py, line " in page.text
    assert card.data["text/plain"].endswith("Failed: 1 of 2 items ok, 1 failed")
    assert (error.output_type, error.ename) == ("error", "JobFailed")
    [result] = outputs[2]
    assert result.data["text/plain"] == "[1, 2]"
    card, told, result = outputs[4]
    assert '"v", values that do not fit' in Page(card.data["text/html"]).text
    assert "JobWarning: Job " in told.text and "line 2002: 'oops' is not of type int" in told.text
    assert "len(windrow.map(lambda row: row['v'], 't.csv'))" in told.text
    assert result.data["text/plain"] == "2001"
    card, error = outputs[5]
    kept = "What is done is kept in"
    text = Page(card.data["text/html"]).text
    assert text.startswith("slow ‖ Interrupted") and " items ok" in text and kept in text
    assert error.ename == "KeyboardInterrupt" and kept in error.evalue


def test_completion_shows_the_public_names_each_with_an_example() -> None:
    assert dir(windrow) == sorted(windrow.__all__)
    for name in set(windrow.__all__) - {"__version__"}:
        text = inspect.getdoc(getattr(windrow, name)) or ""
        what, _, example = text.partition("Example:\n")
        assert what, name
        assert "windrow." in example, name
        compile(textwrap.dedent(example), name, "exec")
