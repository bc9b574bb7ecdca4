"""Completion in a real bash: names of jobs, and of steps behind a colon, over the state folder here."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from client_workspace import Workspace
from hypothesis import given
from hypothesis import strategies as st
from windrow.cli.lines.bash_words import COLON, join
from windrow_command import WINDROW

SCRIPT = """\
PATH={bin}:$PATH
eval "$(windrow --show-completion bash)"
function=$(complete -p windrow | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=({words}); COMP_CWORD={at}; COMPREPLY=()
$function windrow
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("completion"))
    workspace.write(["a"], name="name: digits")
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    return workspace


def replies(workspace: Workspace, *words: str) -> list[str]:
    """What bash offers for the last of these words, as it parts a line into them."""
    script = SCRIPT.format(
        bin=shlex.quote(str(Path(WINDROW).parent)), words=" ".join(map(shlex.quote, words)), at=len(words) - 1
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=workspace.folder, env=workspace.environment(), capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("windrow", "job", "show", "di"), ["digits"]),
        (("windrow", "job", "show", ""), ["last", "digits"]),
        (("windrow", "mb", "list", "di"), ["digits"]),
        # bash replaces only what is behind the colon.
        (("windrow", "mb", "list", "digits", ":", "sc"), ["score"]),
        (("windrow", "mb", "list", "digits", ":"), ["score"]),
        (("windrow", "mb", "list", "digits", ":", "x"), []),
        (("windrow", "mb", "sho"), ["show"]),
    ],
)
def test_names_are_offered(workspace: Workspace, words: tuple[str, ...], offered: list[str]) -> None:
    assert replies(workspace, *words) == offered


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=5), st.data())
def test_words_come_together_again_where_bash_has_parted_them(parts: list[str], data: st.DataObject) -> None:
    words, whole = ["windrow"], ["windrow"]
    for part in parts:
        if len(words) > 1 and data.draw(st.booleans()):
            words += [COLON, part]
            whole[-1] += COLON + part
        else:
            words.append(part)
            whole.append(part)
    assert join(words, len(words) - 1) == (whole, len(whole) - 1)
    assert join([*words, COLON], len(words)) == ([*whole[:-1], whole[-1] + COLON], len(whole) - 1)
    assert join(words, len(words)) == (whole, len(whole)), "a new, empty word"
