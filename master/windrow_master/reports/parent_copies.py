"""`--copy_logs_to_parent`: a step's progress, results and logs, copied to the root of the job's logs, as Azure ML shows
them on the pipeline's run. Reference: docs/reference/azure-ml/parallel-job.md#program-arguments.

The copies are hard links where the file system has them, so what is appended later shows in both places.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from windrow.common.trees import make_folders, walk

from windrow_master.reports.whole_files import PARTIAL_SUFFIX

_OF_THE_ROOT = ("job_result.txt", "readme.txt", "metrics.csv", "nodes.json", "tags.csv")
"""Files of a step that are not copied: the root has its own, or people have no use for them."""


def copy_to_parent(logs: Path, root: Path, prefix: str) -> int:
    """Copy everything in a step's logs to the root, under the same names; return how many files were copied.

    `prefix` is put before each file's name, so that steps do not overwrite each other's files. Raises OSError.
    """
    count = 0
    for folder, _, names in walk(logs):
        target_folder = root / Path(folder).relative_to(logs)
        for name in names:
            if name.endswith(PARTIAL_SUFFIX) or (Path(folder) == logs and name in _OF_THE_ROOT):
                continue
            make_folders(target_folder)
            source, target = Path(folder, name), target_folder / (prefix + name)
            target.unlink(missing_ok=True)
            try:
                os.link(source, target)
            except FileNotFoundError:
                continue
            except OSError:
                shutil.copy2(source, target)
            count += 1
    return count
