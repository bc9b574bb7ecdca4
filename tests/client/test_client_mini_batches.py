"""`windrow mb list|show` and `windrow job report` on runs of this machine: while they run, and afterwards."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import windrow
from client_workspace import Workspace, wait_until
from windrow.errors import NotFound, UsageError

CONTENTS = ["a", "b", "raise", "c", "raise"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run that has ended with two failed items, each tried twice."""
    workspace = Workspace(tmp_path_factory.mktemp("ended"))
    workspace.write(CONTENTS, name="name: ended", max_retries=1)
    done = workspace.run("run", "job.yml", "--no-progress")
    assert done.returncode == 0, done.stderr
    return workspace


def listed(workspace: Workspace, *arguments: str, job: str = "ended") -> list[dict[str, Any]]:
    done = workspace.run("mb", "list", job, *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_mini_batches_are_listed_with_state_tries_and_cause(ended: Workspace) -> None:
    found = listed(ended)
    assert [one["mini_batch_index"] for one in found] == [0, 1, 2, 3, 4]
    assert [(one["state"], one["tries"], one["cause"]) for one in found] == [
        ("succeeded", 1, ""), ("succeeded", 1, ""), ("failed", 2, "exception"), ("succeeded", 1, ""),
        ("failed", 2, "exception"),
    ]  # fmt: skip
    last = found[2]["last_attempt"]
    assert last["status"] == "RUN_EXCEPTION"
    assert last["elapsed_s"] == pytest.approx(last["run_s"] + last["load_s"])
    assert last["peak_rss_bytes"] > 1 << 20


@pytest.mark.parametrize(
    ("arguments", "indices"),
    [
        (["--only", "failed"], [2, 4]),
        (["--only", "failed", "--only", "succeeded"], [0, 1, 2, 3, 4]),
        (["--only", "failed", "--state", ".windrow"], [2, 4]),
        (["--only", "leased"], []),
        (["--cause", "exception", "--limit", "1"], [2]),
        (["--cause", "timeout"], []),
        (["--step", "score", "-n", "3"], [0, 1, 2]),
    ],
)
def test_lists_are_narrowed(ended: Workspace, arguments: list[str], indices: list[int]) -> None:
    assert [one["mini_batch_index"] for one in listed(ended, *arguments)] == indices


def test_the_newest_come_first(ended: Workspace) -> None:
    found = listed(ended, "--newest")
    begun = [one["last_attempt"]["lease_id"] for one in found]
    assert begun == sorted(begun, reverse=True)
    assert len(found) == 5


def test_the_list_for_people_leads_on(ended: Workspace) -> None:
    done = ended.run("mb", "list", "ended", "-n", "3")
    assert done.stdout.splitlines()[0].split() == [
        "MB", "STATE", "TRIES", "CAUSE", "ITEMS", "OK", "NODE", "PROCESS", "BEGAN", "TOOK", "WHY",
    ]  # fmt: skip
    assert "Only the first 3 mini-batches; --limit N shows more" in done.stdout
    assert done.stdout.splitlines()[-1] == "To look closer: windrow mb show ended 2"
    assert ended.run("mb", "list", "ended", "--cause", "oom").stdout == "Job ended has no such mini-batches.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mb", "list", "other"], "no job named 'other'"),
        (["mb", "list", "ended", "--only", "fialed"], "'fialed' is not one of"),
        (["mb", "list", "ended", "--cause", "bad luck"], "'bad luck' is not a cause"),
        (["mb", "list", "ended", "--step", "other"], "no step named 'other'"),
        (["mb", "show", "ended", "5"], "no mini-batch 5"),
        (["mb", "show", "ended", "five"], "is not a mini-batch"),
        (["job", "logs", "ended", "--failed", "--step", "nope"], "no step named 'nope'. Its steps: score."),
        (["job", "report", "other"], "no job named 'other'"),
        (["job", "report", "ended", "--to", "/nowhere/x.html"], "cannot be written to /nowhere/x.html"),
    ],
)
def test_what_is_not_there_is_told(ended: Workspace, arguments: list[str], told: str) -> None:
    done = ended.run(*arguments)
    assert done.returncode == 2
    assert told in done.stderr


def test_logs_of_a_worker_are_not_told_as_those_of_a_mini_batch_that_succeeded(ended: Workspace) -> None:
    assert "Its logs:" in ended.run("mb", "show", "ended", "2").stdout
    text = ended.run("mb", "show", "ended", "3").stdout
    assert "Its logs:" not in text
    assert "Its worker's logs, with those of other mini-batches: windrow job logs ended score/" in text


def test_a_mini_batch_is_shown_whole(ended: Workspace) -> None:
    done = ended.run("mb", "show", "ended", "score/2")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert str(ended.folder / "data" / "item002.txt") in text
    assert text.count("exception in run() (UserError)") == 2
    assert text.count("ValueError: this item is bad: item002.txt") >= 4
    assert text.count("Traceback (most recent call last):") == 2
    assert "windrow mb replay ended 2 " in text
    log = re.search(r"windrow job logs (.*)", text)
    assert log is not None
    assert ended.run("job", "logs", *log.group(1).split()).returncode == 0
    details = json.loads(ended.run("mb", "show", "ended", "2", "--format", "json").stdout)
    assert details["items"] == [str(ended.folder / "data" / "item002.txt")]
    assert details["recipe"] == {"files": details["items"]}
    assert [one["counts"] for one in details["attempts"]] == [False, True]
    assert details["replay"] == "windrow mb replay ended 2"


def test_the_sdk_tells_the_same(ended: Workspace) -> None:
    with windrow.Client(state=ended.state) as client:
        assert [one.mini_batch_index for one in client.mini_batches("ended", state="failed", page_size=1)] == [2, 4]
        found = client.mini_batch("ended", 2)
        assert found.mini_batch.cause == "exception"
        assert found.attempts[-1].process_name.startswith("process")
        with pytest.raises(NotFound):
            client.mini_batch("ended", 99)
        with pytest.raises(UsageError):
            client.mini_batch("ended", -1)
        with pytest.raises(UsageError):
            list(client.mini_batches("ended", state="done"))
        assert client.report("ended")["job"]["state"] == "completed_with_failures"


def test_the_items_that_failed_are_shown_with_the_command_that_runs_the_first_of_them_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write(["a", "b", "raise", "c"], name="name: split", mini_batch_size=4)
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    bad = str(workspace.folder / "data" / "item002.txt")
    text = workspace.run("mb", "show", "split", "0").stdout
    failed = text.partition("Failed items:\n")[2].splitlines()
    assert failed[0].startswith(f"  {bad}: run() raised ValueError: this item is bad: item002.txt")
    assert failed[1] == "To run only the first of them: windrow mb replay split 0 --item 2"
    assert workspace.run(*failed[1].partition("windrow ")[2].split()).returncode == 1
    (told,) = json.loads(workspace.run("mb", "show", "split", "0", "--format", "json").stdout)["failed_items"]
    assert (told["item"], told["number"], told["cause"]) == (bad, 2, "exception")
    with windrow.Client(state=workspace.state) as client:
        (one,) = client.mini_batch("split", 0).failed_items
        assert one._asdict() == told


class Page(HTMLParser):
    """Checks that tags fit, and gathers words and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_report_is_one_page_that_needs_nothing_else(ended: Workspace, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    done = ended.run("job", "report", "ended", "--to", str(target))
    assert (done.returncode, done.stdout) == (0, f"{target}\n"), done.stderr
    text = target.read_text()
    page = Page(text)
    assert page.addresses == []
    assert "http" not in text.replace("http-equiv", "")
    words = " ".join(page.words)
    assert "completed with failures" in words
    # Of two that fail, side by side, either may be the first.
    first = re.search(r"run\(\) raised ValueError: this item is bad: item00([24])\.txt", words)
    assert first, words
    assert f"windrow mb replay ended {first.group(1)} --pdb" in words
    figures = json.loads(ended.run("job", "report", "ended", "--format", "json").stdout)
    spent = figures["steps"][0]["figures"]["worker_us"]
    starts = figures["steps"][0]["starts"]
    assert starts["workers"] in (1, 2) and starts["start_us"] > 0, "each told it with its first attempt"
    assert spent["total"] == sum(value for name, value in spent.items() if name != "total") > 0
    assert figures["steps"][0]["figures"]["attempts"] == {"useful": 3, "retried": 4, "lost": 0, "running": 0}


def test_names_of_a_job_are_only_text_on_its_page(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write(["a"], name="name: plain\ndisplay_name: \"<script>alert('x')</script>\"")
    (workspace.folder / "code" / "score.py").write_text("def run(batch): raise ValueError('<b>&amp;</b>')\n")
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 1
    done = workspace.run("job", "report", "plain", "--to", "-")
    page = Page(done.stdout)
    assert "<script>alert('x')</script>" in page.words
    assert "<b>" not in done.stdout


def test_a_run_is_looked_at_while_it_runs(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write(["a", "wait", "wait", "wait", "wait"], name="name: live")
    run = workspace.start("run", "job.yml", "--no-progress")
    try:

        def at_work() -> list[dict[str, Any]]:
            # Not before the run owns its state folder: else the question would bring a master of its own there.
            if not (workspace.state / "embedded.json").exists():
                return []
            if not workspace.run("job", "list").stdout.startswith("JOB"):
                return []
            found = listed(workspace, "--only", "leased", job="live")
            return [one for one in found if one["last_attempt"]["phase"] == "running"]

        def two_at_work() -> list[dict[str, Any]] | None:
            found = at_work()
            return found if len(found) == 2 else None

        working = wait_until(two_at_work, "two mini-batches run")
        # Which of them: nodes hold more than they run.
        running = [one["mini_batch_index"] for one in working]
        assert len(set(running)) == 2 and 0 not in running
        assert [one["mini_batch_index"] for one in listed(workspace, "--only", "succeeded", job="live")] == [0]
        shown = workspace.run("mb", "show", "live", str(running[0])).stdout
        assert "Attempt 1: running" in shown
        assert re.search(r"now +running", shown)

        def with_running() -> dict[str, Any] | None:
            step = json.loads(workspace.run("job", "report", "live", "--format", "json").stdout)["steps"][0]
            return step["figures"] if step["figures"] and step["figures"]["attempts"]["running"] == 2 else None

        figures = wait_until(with_running, "the report tells of what runs")
        assert figures["worker_us"]["running"] > 0
        page = Page(workspace.run("job", "report", "live", "--to", "-").stdout)
        assert any("running now" in words for words in page.words)
    finally:
        workspace.gate.touch()
        run.communicate(timeout=240)
    assert run.returncode == 0
