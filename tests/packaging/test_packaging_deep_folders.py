"""Scripts and strangers may nest folders thousands deep: nothing that calls itself for each of them goes through one.

`os.walk` (before Python 3.12), `os.fwalk`, `shutil.rmtree`, `shutil.copytree`, `Path.rglob`, patterns with `**` and
`tempfile.TemporaryDirectory` do, and end with a RecursionError in some hundred. `windrow.common.trees` and `.removal`
do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("agent", "client", "master", "worker")
CALLS = {"os.walk", "os.fwalk", "shutil.rmtree", "shutil.copytree", "tempfile.TemporaryDirectory"}
NAMES = {name.rpartition(".")[2] for name in CALLS}
LISTING = {"scandir", "listdir", "iterdir", "names"}

OF_THE_SCRIPT = "it runs in the script's own process, and ends no other"
OF_WINDROW = "it holds files of Windrow's own making, and no folders"
ALLOWED = {
    "client/windrow/cli/running/dry_run.py: tempfile.TemporaryDirectory": OF_WINDROW,
    "client/windrow/sdk/row_query.py: tempfile.TemporaryDirectory": OF_WINDROW,
    "client/windrow/sdk/run_choice.py: tempfile.TemporaryDirectory": OF_WINDROW,
    "client/windrow/common/trees.py: glob.glob": "says what is wrong, in place of a RecursionError",
    "worker/windrow_worker/offered/azureml/core/_agent.py: os.walk": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/_agent.py: shutil.rmtree": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/dataset.py: glob.glob": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/dataset.py: os.walk": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/datastore.py: os.walk": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/inputs.py: glob.glob": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/inputs.py: os.walk": OF_THE_SCRIPT,
    "worker/windrow_worker/offered/azureml/core/model.py: shutil.copytree": OF_THE_SCRIPT,
    "worker/windrow_worker/replay.py: os.walk": OF_THE_SCRIPT,
    "worker/windrow_worker/script/command.py: os.walk": OF_THE_SCRIPT,
    "worker/windrow_worker/script/command.py: shutil.copytree": OF_THE_SCRIPT,
    "worker/windrow_worker/script/command.py: shutil.rmtree": OF_THE_SCRIPT,
}


def recursive(source: str) -> Iterator[tuple[int, str]]:
    """What goes through folders by calling itself: the line, and its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in CALLS or node.attr == "rglob":
                yield node.lineno, name
        elif isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile"):
            yield from ((node.lineno, f"{node.module}.{one.name}") for one in node.names if one.name in NAMES)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("glob", "iglob") and _goes_deep(node):
                yield node.lineno, ast.unparse(node.func)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = {_called(one) for one in ast.walk(node) if isinstance(one, ast.Call)}
            if node.name in calls and calls & LISTING:
                yield node.lineno, node.name


def _called(call: ast.Call) -> str:
    func = call.func
    if isinstance(func, ast.Name):
        return func.id
    # A method of another object may have the same name.
    is_listing = isinstance(func, ast.Attribute) and func.attr in LISTING
    is_own = isinstance(func, ast.Attribute) and ast.unparse(func.value) in ("self", "cls")
    return func.attr if isinstance(func, ast.Attribute) and (is_listing or is_own) else ""


def _goes_deep(call: ast.Call) -> bool:
    texts = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant)]
    return any(isinstance(text, str) and "**" in text for text in texts) or any(
        keyword.arg == "recursive" for keyword in call.keywords
    )


def test_nothing_calls_itself_for_each_folder() -> None:
    files = [path for root in ROOTS for path in sorted((REPOSITORY / root).rglob("*.py"))]
    assert len(files) > 500
    found = {}
    for path in files:
        place = path.relative_to(REPOSITORY)
        for line, name in recursive(path.read_text()):
            found.setdefault(f"{place}: {name}", f"{place}:{line}: {name}")
    new = [where for key, where in found.items() if key not in ALLOWED]
    assert not new, "Take windrow.common.trees or .removal instead:\n" + "\n".join(new)
    assert not ALLOWED.keys() - found.keys(), "These are gone: take them out of ALLOWED"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os\nfor _ in os.walk('a'): pass", ["os.walk"]),
        ("import os\nfor _ in os.fwalk('a'): pass", ["os.fwalk"]),
        ("import atexit, shutil\natexit.register(shutil.rmtree, 'a')", ["shutil.rmtree"]),
        ("from shutil import copytree as copy\ncopy('a', 'b')", ["shutil.copytree"]),
        ("from pathlib import Path\nPath('a').rglob('*')", ["Path('a').rglob"]),
        ("from pathlib import Path\nPath('a').glob('**/b')", ["Path('a').glob"]),
        ("import glob\nglob.iglob(x, recursive=True)", ["glob.iglob"]),
        ("import tempfile\nwith tempfile.TemporaryDirectory() as a: pass", ["tempfile.TemporaryDirectory"]),
        ("import os\ndef f(a):\n  for e in os.scandir(a):\n    yield from f(e.path)", ["f"]),
        ("class A:\n  def f(self, a):\n    return [self.f(e) for e in a.iterdir()]", ["f"]),
        ("from pathlib import Path\nPath('a').glob('*/b')", []),
        ("import glob\nglob.glob('a/*')", []),
        ("import os\ndef f(a):\n  return [g(e) for e in os.scandir(a)]", []),
    ],
)
def test_what_calls_itself_is_found(source: str, names: list[str]) -> None:
    assert [name for _, name in recursive(source)] == names
