"""Where tests keep what takes long to fetch or to make, for later runs: environments, programs of other projects."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def kept_folder() -> Path:
    """The folder, which is in the user's home also where HOME is another one for the run of the tests."""
    given = os.environ.get("WINDROW_TEST_ENVIRONMENTS")
    homes = [os.environ.get("HOME"), pwd.getpwuid(os.geteuid()).pw_dir]
    tried = [Path(given)] if given else [Path(home) / ".cache/windrow-tests" for home in reversed(homes) if home]
    for folder in [*tried, REPOSITORY / "build" / "environments"]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise RuntimeError("there is no folder that can be written; set WINDROW_TEST_ENVIRONMENTS")
