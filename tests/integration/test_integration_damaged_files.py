"""A byte of the state that is not what was written is told, or has no effect: never another output."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, check_words, wait_until
from file_damage import append, cut, flip_in

Make = Callable[..., EmbeddedRun]

FILES = 200
SCRIPT = """\
import os, time

def run(mini_batch):
    while os.path.basename(mini_batch[0]) > "f00020" and os.path.exists({gate!r}):
        time.sleep(0.01)
    return [os.path.basename(path) + " " + open(path).read() for path in mini_batch]
"""
EXPECTED = "".join(f"f{number:05d} {number}\n" for number in range(FILES))


def held_up(make: Make, tmp_path: Path, files: int = FILES, **settings: str) -> tuple[EmbeddedRun, Path]:
    """A run that stops after twenty files until the gate, which is returned, too, is taken away."""
    gate = tmp_path / "gate"
    gate.touch()
    return make(SCRIPT.format(gate=str(gate)), files, **settings), gate


@pytest.fixture
def stopped(make: Make, tmp_path: Path) -> EmbeddedRun:
    """A run all of whose processes were killed in the middle; started again, it is not held up any more."""
    run, gate = held_up(make, tmp_path, settings="error_threshold: -1")
    run.start()
    wait_until(lambda: run.committed() >= 20, "the first mini-batches are done")
    run.kill_all()
    gate.unlink()
    return run


def recipes_of(run: EmbeddedRun) -> Path:
    (found,) = run.state.glob("jobs/*/steps/*/recipes")
    return found


def check_told(run: EmbeddedRun, words: list[str]) -> None:
    code, text = run.run()
    assert code != 0, text
    check_words(text, words)
    assert not run.output.exists()


def test_a_bit_in_the_name_of_an_item_that_has_not_begun(stopped: EmbeddedRun) -> None:
    recipes = recipes_of(stopped)
    flip_in(recipes, b"f00170", at=3)
    assert recipes.read_bytes().count(b"f00070") == 2
    check_told(stopped, [str(recipes), "is damaged", "recipe of mini-batch 170", "fails its checksum", "--since"])


def test_the_job_is_run_again_since_the_one_that_was_damaged(stopped: EmbeddedRun) -> None:
    flip_in(recipes_of(stopped), b"f00170", at=3)
    code, text = stopped.run()
    assert code != 0, text
    code, text = stopped.run("--since", "last")
    assert code == 0, text
    assert sorted(stopped.output.read_text().splitlines(keepends=True)) == EXPECTED.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "how"),
    [
        (Path.unlink, "is gone"),
        (lambda path: cut(path, 3), "is cut off"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "fails its checksum"),
    ],
    ids=["deleted", "cut", "zeroed"],
)
def test_recipes_that_are_gone_or_cut(stopped: EmbeddedRun, damage: Callable[[Path], None], how: str) -> None:
    recipes = recipes_of(stopped)
    damage(recipes)
    check_told(stopped, [str(recipes), "is damaged", how])


def test_what_is_added_to_recipes_has_no_effect(stopped: EmbeddedRun) -> None:
    append(recipes_of(stopped))
    code, text = stopped.run()
    assert code == 0, text
    assert stopped.output.read_text() == EXPECTED


@pytest.mark.parametrize("damage", ["flipped", "gone"])
@pytest.mark.parametrize("node_has_it", [True, False])
def test_code_that_is_damaged_never_runs_and_the_same_command_brings_it_anew(
    stopped: EmbeddedRun, damage: str, node_has_it: bool
) -> None:
    (archive,) = (stopped.state / "artifacts").iterdir()
    whole = archive.read_bytes()
    if damage == "flipped":
        flip_in(archive, b"os.path.basename(path)", at=3)
    else:
        archive.unlink()
    if not node_has_it:
        shutil.rmtree(stopped.state / "agent")
    code, text = stopped.run()
    assert code == 0, text
    assert stopped.output.read_text() == EXPECTED
    assert archive.read_bytes() == whole


def test_a_recipe_that_is_damaged_while_its_job_runs(make: Make, tmp_path: Path) -> None:
    run, gate = held_up(make, tmp_path, 2000, settings="error_threshold: -1")
    run.start()
    wait_until(lambda: run.committed() >= 20, "the first mini-batches are done")
    recipes = recipes_of(run)
    wait_until(lambda: b"f01700" in recipes.read_bytes(), "all is planned")
    flip_in(recipes, b"f01700", at=2)
    gate.unlink()
    code, text = run.finish()
    assert code != 0, text
    check_words(text, [str(recipes), "is damaged", "recipe of mini-batch 1700", "--since"])
    assert not run.output.exists()
    assert "Traceback" not in text


def test_a_run_whose_datastore_is_forgotten_waits_for_it_and_goes_on(make: Make, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    run, gate = held_up(make, tmp_path)
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("path: ./out.txt", "path: azureml://datastores/lake/paths/out.txt"))
    run.start("--datastore", f"lake={lake}")
    wait_until(lambda: run.committed() >= 20, "the first mini-batches are done")
    run.kill_all()
    gate.unlink()
    kept = run.state / "datastores.json"
    content = kept.read_bytes()
    kept.write_bytes(content.replace(b"lake", b"lakf", 1))
    check_told(run, ["datastores.json is damaged", "--datastore NAME=PLACE"])
    kept.unlink()
    code, text = run.run()
    assert code != 0, text
    check_words(text, ["azureml://datastores/lake/paths/out.txt", "--datastore"])
    assert not list(lake.iterdir())
    # The master that was started for this has not ended the run.
    code, text = run.run("--datastore", f"lake={lake}")
    assert code == 0, text
    check_words(text, ["Continuing run"])
    assert (lake / "out.txt").read_text() == EXPECTED
    assert len(list((run.state / "jobs").iterdir())) == 1
