"""What a terminal shows: nothing is cut off or folded to shreds where it is narrow; colours only where wanted."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import termios

import pytest
from client_workspace import MAIN, Workspace
from windrow.cli.display import uploads
from windrow.cli.messages import at_words, visible
from windrow.cli.tables import print_fields, print_table
from windrow.transfer.local_data import PLACED, READING, UNPACKING, UPLOADING, UploadMoment


def on_terminal(
    workspace: Workspace,
    columns: int,
    *arguments: str,
    program: str = MAIN,
    status: int = 0,
    opens: str = "━",
    **extra: str,
) -> str:
    """What the command writes to a terminal of this width. `opens`: the gate opens when what this matches is shown."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    environment = workspace.environment(TERM="xterm", **{"NO_COLOR": "", **extra})
    # The test runner's own, which would win over the size of this terminal.
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=workspace.folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
            if re.search(opens, plain(shown.decode(errors="replace"))):
                workspace.gate.touch()
    except OSError:
        pass  # how a terminal tells that nobody writes to it any more
    os.close(ours)
    assert process.wait() == status, shown
    return shown.decode().replace("\r\n", "\n")


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


@pytest.mark.parametrize("columns", [40, 44, 80, 200])
def test_lists_fit_the_terminal(workspace: Workspace, columns: int) -> None:
    workspace.write(["1", "2"], name="name: " + "n" * 16)
    assert workspace.run("run", "job.yml").returncode == 0
    listed = plain(on_terminal(workspace, columns, "job", "list"))
    assert re.search(r"\bn{13}…" if columns == 44 else r"\bn{16}\b", listed)
    assert re.search(r"\bcompleted\b", listed)
    assert max(map(len, listed.splitlines())) <= columns
    assert bool(re.search("JOB +nnn", listed)) == (columns == 40)
    shown = plain(on_terminal(workspace, columns, "job", "show", "n" * 16))
    assert "MINI-BATCHES" in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_each_mini_batch_is_one_line_also_where_some_failed(workspace: Workspace, columns: int) -> None:
    workspace.write(["a", "raise", "raise"], name="name: bad")
    assert workspace.run("run", "job.yml", "--tolerate").returncode == 0
    for unwanted in ("", "1"):  # colours
        head, *rows, _ = plain(on_terminal(workspace, columns, "mb", "list", "last", NO_COLOR=unwanted)).splitlines()
        assert ("MB" in head, "WHY" in head, "PROCESS" in head) == (True, True, columns == 200)
        assert [row.split()[:2] for row in rows] == [["0", "succeeded"], ["1", "failed"], ["2", "failed"]]
        assert max(len(row.rstrip()) for row in (head, *rows)) <= columns
        assert all("run() raised" in row if columns == 200 else "run()" in row and "…" in row for row in rows[1:])


def test_a_run_on_a_terminal_is_drawn_within_its_width(workspace: Workspace) -> None:
    workspace.write(["1", "2", "3", *["wait"] * 4])
    shown = plain(on_terminal(workspace, 50, "run", "job.yml"))
    assert "score" in shown
    assert "Output:" in shown
    drawn = [line for line in shown.splitlines() if "━" in line]
    assert all(len(part.rstrip()) <= 50 for line in drawn for part in line.split("\r")), drawn


def test_python_shows_a_bar_on_a_terminal_unless_it_is_not_wanted(workspace: Workspace) -> None:
    workspace.write(["a", "raise", "wait"], error_threshold=-1)
    program = "import windrow; windrow.run('job.yml', on_progress=lambda job: print('moment', job.seq))"
    shown = plain(on_terminal(workspace, 100, program=program))
    last = shown.rstrip().splitlines()[-1]
    assert re.search(r"^job CompletedWithFailures ━+ 2 of 3 items ok, 1 failed +\d:\d\d:\d\d$", last)
    assert re.search(r"(?m)(?:^|\r)moment \d+ *$", shown)
    assert max(map(len, shown.splitlines())) <= 100
    quiet = "import windrow; windrow.run('job.yml', progress=False)"
    assert on_terminal(workspace, 100, program=quiet) == ""
    waiting = "import windrow; [job, _] = windrow.Client(state='.windrow').list_jobs()"
    waited = on_terminal(workspace, 100, program=f"{waiting}; windrow.Client(state='.windrow').wait(job.job_id)")
    assert "2 of 3 items ok, 1 failed" in plain(waited)


def test_python_shows_no_bar_where_there_is_no_terminal(workspace: Workspace) -> None:
    workspace.write(["a"])
    program = "import sys, windrow; windrow.run('job.yml'); assert 'rich' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_no_colours_where_they_are_not_wanted(workspace: Workspace) -> None:
    workspace.write(["1", "2"])
    assert "\x1b" not in on_terminal(workspace, 80, "run", "job.yml", NO_COLOR="1")
    assert "\x1b" not in on_terminal(workspace, 80, "job", "list", NO_COLOR="1")
    assert "\x1b[" in on_terminal(workspace, 80, "job", "list")


class Terminal(io.StringIO):
    """What a terminal would get."""

    def isatty(self) -> bool:
        return True


def test_data_on_its_way_is_drawn_and_told_in_one_line_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(uploads, "QUIET_S", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with uploads.UploadDisplay() as display:
        for phase in (READING, UPLOADING, UNPACKING):
            for done in (0, 600_000, 1_000_000):
                display.show(UploadMoment("inputs.data", phase, done, 1_000_000))
        display.show(UploadMoment("inputs.data", PLACED, 5, 999_000))
        display.show(UploadMoment("inputs.more", PLACED, 0, 1_000))
    shown = plain(sys.stderr.getvalue())  # type: ignore[attr-defined]
    for phase in (READING, UPLOADING, UNPACKING):
        assert re.search(f"{phase} inputs.data ━+", shown)
    assert shown.endswith("Uploaded 999.0 KB of inputs.data\nThe master already has inputs.more (1.0 KB)\n")


def test_data_on_its_way_is_one_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet, said in ((False, "Uploaded 1.2 GB of inputs.data\n"), (True, "")):
        with uploads.UploadDisplay(quiet=quiet) as display:
            display.show(UploadMoment("inputs.data", UPLOADING, 5, 10))
            display.show(UploadMoment("inputs.data", PLACED, 10, 1_200_000_000))
        assert capsys.readouterr().err == said


WAITING_INIT = """
def init():
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.005)
"""


def waits_in_init(workspace: Workspace) -> None:
    workspace.write(["1", "2"])
    script = workspace.folder / "code" / "score.py"
    script.write_text(script.read_text().replace("def init():\n    pass\n", WAITING_INIT))


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_run_says_what_it_waits_for_before_there_is_a_result(workspace: Workspace, columns: int) -> None:
    waits_in_init(workspace)
    shown = plain(on_terminal(workspace, columns, "run", "job.yml", opens=r"init\(\) for \d+ s on"))
    drawn = [line for line in shown.splitlines() if "init()" in line or "0/2" in line]
    assert all(len(part.rstrip()) <= columns for line in drawn for part in line.split("\r")), drawn
    assert re.search(r"score +━+ +0/2.* running", shown)
    assert "Output:" in shown


def test_python_says_what_it_waits_for_before_there_is_a_result(workspace: Workspace) -> None:
    waits_in_init(workspace)
    program = "import windrow; windrow.run('job.yml')"
    shown = plain(on_terminal(workspace, 80, program=program, opens=r"0 of 2 items ok, init\(\) for \d+ s on"))
    assert "2 of 2 items ok" in shown


@pytest.mark.parametrize("form", ["text", "json"])
def test_where_there_is_no_terminal_a_line_says_what_is_waited_for(workspace: Workspace, form: str) -> None:
    waits_in_init(workspace)
    process = workspace.start("run", "job.yml", "--format", form)
    seen = []
    with process:
        lines = process.stderr if form == "text" else process.stdout
        assert lines is not None
        for line in lines:
            seen.append(line.rstrip("\n"))
            if (form == "text" and "init()" in line) or '"code": "WORKERS_STARTING"' in line:
                workspace.gate.touch()
    assert process.returncode == 0, seen
    assert workspace.gate.exists()
    if form == "text":
        assert [line for line in seen if re.fullmatch(r"Waiting: init\(\)( for \d+ s)? on [12] workers?", line)], seen


@pytest.mark.parametrize("columns", [80, 120])
def test_words_stay_whole_at_the_end_of_a_line(workspace: Workspace, columns: int) -> None:
    workspace.write(["a", "raise", "b"])
    shown = on_terminal(workspace, columns, "run", "job.yml")
    shown += on_terminal(workspace, columns, "job", "show", "last")
    shown += on_terminal(workspace, columns, "mb", "show", "last", "1")
    shown += on_terminal(workspace, columns, "run", "job.yml", "--dry-run")
    lines = plain(shown).splitlines()
    for line in lines:
        # Only a path that is longer than the line, a command that is to be copied, and code do not fit.
        is_path = line.split()[-1:] and "/" in line.split()[-1]
        assert len(line) <= columns or is_path or line.startswith(("windrow ", "    ")), line
    assert "this item is bad: item001.txt" in " ".join(map(str.strip, lines))
    piped = workspace.run("job", "show", "last").stdout.splitlines()
    assert max(map(len, piped)) > columns, "elsewhere, lines are whole"


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("one two three four five six", ["one two three four", "five six"]),
        ("  it says one two three", ["  it says one two", "  three"]),
        ("a/path/of/more/than/twenty/columns stays", ["a/path/of/more/than/twenty/columns", "stays"]),
        ("Go on with: windrow run job.yml -v. Or not.", ["Go on with:", "windrow run job.yml -v.", "Or not."]),
        ("It is `windrow job list` that lists", ["It is", "`windrow job list`", "that lists"]),
        ("    of code that is longer than a line", ["    of code that is longer than a line"]),
        ("\x1b[33mone two three four five\x1b[0m", ["\x1b[33mone two three four", "five\x1b[0m"]),
    ],
)
def test_a_line_ends_at_a_word_and_commands_stay_whole(
    line: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 20))
    monkeypatch.delenv("COLUMNS", raising=False)
    with open(theirs, "w") as terminal:
        assert at_words(line, terminal).split("\n") == lines
    os.close(ours)
    assert at_words(line, io.StringIO()) == line


CONTROLLING = """
def init():
    pass

def run(mini_batch):
    print("\\x1b[2Jgone\\rover \\x1b]0;owned\\x07 caf\\u00e9", flush=True)
    return ["\\x1b[31mred\\x1b]0;owned\\x07 caf\\u00e9"] * len(mini_batch)
"""


def test_what_a_script_wrote_does_not_control_the_terminal_and_is_whole_in_a_pipe(workspace: Workspace) -> None:
    workspace.write(["1"], workers=1)
    (workspace.folder / "code" / "score.py").write_text(CONTROLLING)
    assert workspace.run("run", "job.yml").returncode == 0
    listed = workspace.run("job", "logs", "last", "--format", "json").stdout
    log = next(path for path in re.findall(r'"path": "([^"]+)"', listed) if path.endswith("process000.stdout.txt"))
    commands = {
        ("job", "logs", "last", log): "\x1b[2Jgone\rover \x1b]0;owned\x07 café\n",
        ("job", "rows", "last"): "\x1b[31mred\x1b]0;owned\x07 café\n",
        ("job", "query", "last", "select line from lines", "--format", "csv"): "\x1b[31mred\x1b]0;owned\x07 café",
    }
    for command, written in commands.items():
        shown = on_terminal(workspace, 80, *command, NO_COLOR="1")
        assert "\\x1b]0;owned\\x07 café" in shown, shown
        assert not set("\x1b\x07\r") & set(shown), shown
        assert (
            written
            in subprocess.run(
                [sys.executable, "-c", MAIN, *command],
                cwd=workspace.folder,
                env=workspace.environment(),
                capture_output=True,
                check=True,
            ).stdout.decode()
        )


@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x9b", "\r", "\u061c", "\u202e", "\u2066", "\u200b", "\u2060", "\ufeff", "\u2028", "\U000e0041"],
)
def test_what_controls_a_terminal_or_is_not_seen_is_shown_as_an_escape(character: str) -> None:
    shown = visible(f"a{character}b")
    assert shown.startswith("a\\")
    assert shown.isascii()
    assert shown.isprintable()


@pytest.mark.parametrize(
    "text", ["Größe\t1\n2", "\u0646\u0627\u0645\u0647\u200c\u0627\u06cc", "\U0001f469\u200d\U0001f52c"]
)
def test_text_of_all_scripts_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("columns", [200, 30])
def test_no_value_looks_like_another_row_or_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("windrow.cli.tables.is_terminal", lambda stream: True)
    print_table(["NODE", "STATE"], [["first", "lost\nSTATE  ready\nNODE   second"]])
    print_fields([("state", "failed\nstate  completed"), ("message", "why")])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("STATE")]) <= 1
    assert not [line for line in lines if line.startswith(("NODE   second", "state  completed", "state    completed"))]
    assert "         state  completed" in lines
