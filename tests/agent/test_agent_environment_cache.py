"""The folder that environments of a node are kept in: what is used stays, what nobody uses goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from windrow_agent.environments.cache import KEPT, Cache


def test_what_nobody_uses_is_pruned_the_longest_unused_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kept")
    digests = [f"{number:064d}" for number in range(KEPT + 3)]
    now = time.time()
    for age, digest in enumerate(digests):
        lock = cache.try_lock(digest)
        assert lock is not None
        (cache.place(digest) / "bin").mkdir(parents=True)
        cache.finish(digest, {})
        os.utime(cache.note(digest), (now - age, now - age))
        lock.release()
    held = cache.try_share(digests[-1])
    assert held is not None
    assert cache.try_lock(digests[-1]) is None
    assert sorted(cache.prune()) == sorted(digests[KEPT:-1])
    assert cache.is_whole(digests[-1])
    held.release()
    assert cache.prune() == [digests[-1]]
    os.utime(cache.note(digests[0]), (0, 0))
    assert cache.prune() == [digests[0]]


def test_environments_of_another_user_are_used_and_stay(request: pytest.FixtureRequest) -> None:
    """Root becomes the other user; whoever is not root may not write to the folder either."""
    # Not below tmp_path, into which nobody else may look.
    folder = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(folder))
    folder.chmod(0o755)
    cache, digest = Cache(folder), "0" * 64
    lock = cache.try_lock(digest)
    assert lock is not None
    cache.place(digest).mkdir()
    cache.finish(digest, {})
    lock.release()
    (folder / f"{digest}.lock").chmod(0o444)
    os.utime(cache.note(digest), (0, 0))
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
        request.addfinalizer(lambda: os.seteuid(0))
    else:
        request.addfinalizer(lambda: folder.chmod(0o755))
    held = cache.try_share(digest)
    assert held is not None
    cache.note_use(digest)
    held.release()
    assert cache.prune() == []


def test_what_is_left_of_builds_that_broke_off_is_removed_and_what_is_being_built_is_not(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    whole, broken, building, lock_alone = (f"{number:064d}" for number in range(4))
    for digest in (whole, broken, building):
        (cache.place(digest) / "lib").mkdir(parents=True)
        (cache.place(digest) / "lib" / "module.py").write_text("x" * 1000)
    for digest in (whole, broken, lock_alone):
        lock = cache.try_lock(digest)
        assert lock is not None
        lock.release()
    cache.finish(whole, {})
    (tmp_path / "notes").mkdir()
    held = cache.try_lock(building)
    assert held is not None
    assert cache.kept() == (1, 1000, 3)
    assert cache.prune() == [broken, lock_alone]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [whole, f"{whole}.json", f"{whole}.lock", building, f"{building}.lock", "notes"]
    )
    held.release()
    assert cache.prune() == [building]
    assert cache.kept() == (1, 1000, 0)


def test_an_agent_in_a_process_of_its_own_keeps_what_it_uses(tmp_path: Path) -> None:
    cache, digest = Cache(tmp_path), "0" * 64
    lock = cache.try_lock(digest)
    assert lock is not None
    cache.place(digest).mkdir()
    cache.finish(digest, {})
    lock.release()
    os.utime(cache.note(digest), (0, 0))
    program = (
        "import sys; from pathlib import Path; from windrow_agent.environments.cache import Cache\n"
        "held = Cache(Path(sys.argv[1])).try_share(sys.argv[2]); print(held is not None, flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(tmp_path), digest]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        assert cache.prune() == []
        other.kill()
    assert cache.prune() == [digest], "whoever is dead uses nothing"
