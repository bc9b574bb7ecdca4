"""A job file and its package, which have to be the same job."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from windrow.spec import EffectiveJob, load_job
from windrow.spec.load import read_job
from windrow.spec.reading.nodes import Mapping
from windrow.spec.writing.package import JOB_FILE, Package, package_of


def write_package(file: Path, target: Path, sets: Sequence[str] = (), *, embedded: bool = True) -> Package:
    """Write the package of a job file, with its code, into a new folder."""
    tree = read_job(file, sets, embedded=embedded)
    tree.load()
    assert isinstance(tree.root, Mapping)
    package = package_of(tree.root, "kept", tree.context)
    for name, text in package.files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    for code, name in package.code.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).symlink_to(code)
    return package


def check_package(file: Path, job: EffectiveJob, sets: Sequence[str] = ()) -> None:
    """`job`: what the file is loaded as, on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        write_package(file, Path(folder, "kept"), sets)
        # The name is that of one job alone; paths may have it.
        name = [f"name={job.name}"] if job.name else []
        kept = load_job(Path(folder, "kept", JOB_FILE), name).job
    ours, theirs = (_compared(one) for one in (job, kept))
    assert theirs == ours, "the package is another job"


def _compared(job: EffectiveJob) -> EffectiveJob:
    """What has to be equal: all but names, and messages with places."""
    return job._replace(name=None, display_name="", job_file="", warnings=())
