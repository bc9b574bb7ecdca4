"""`azureml_user.parallel_run.EntryScript`, offered where the real package is not installed
(docs/reference/azure-ml/parallel-job.md#workers)."""

from __future__ import annotations

import logging
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from windrow_worker.protocol.configuration import Configuration

_LINE = "%(asctime)s|%(levelname)s|%(process)d|%(thread)d|%(message)s"

_values: Dict[str, str] = {}


class EntryScript:
    """Information about the process that runs the script. A singleton.

    `logger`: writes to `<log_dir>/<agent_name>.log.txt` from `logging_level` up. `log_dir`: the folder of script logs
    on this node. `agent_name`: this worker, as in process000. `output_dir`: the folder for files that the script
    writes. `working_dir`: the folder of the script's code.
    """

    _only: Optional[EntryScript] = None
    _logger: Optional[logging.Logger] = None

    def __new__(cls) -> EntryScript:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    @property
    def logger(self) -> logging.Logger:
        """The logger. It and its file are made at the first use."""
        if self._logger is None:
            logger = logging.getLogger("EntryScript")
            logger.setLevel(_values.get("logging_level", "INFO"))
            logger.propagate = False
            os.makedirs(self.log_dir, exist_ok=True)
            path = os.path.join(self.log_dir, self.agent_name + ".log.txt")
            handler = (
                logging.FileHandler(path, encoding="utf-8", errors="surrogateescape")
                if _HAS_ERRORS
                else logging.FileHandler(path, encoding="utf-8")
            )
            handler.setFormatter(logging.Formatter(_LINE))
            logger.addHandler(handler)
            self._logger = logger
        return self._logger

    @property
    def log_dir(self) -> str:
        """The folder for log files of the script's own. The script has to make it."""
        return _values.get("log_dir", "")

    @property
    def agent_name(self) -> str:
        """The name of the worker, as in process000."""
        return _values.get("agent_name", "")

    @property
    def output_dir(self) -> str:
        """The folder for output files; empty if the step has no output."""
        return _values.get("output_dir", "")

    @property
    def working_dir(self) -> str:
        """The code folder."""
        return _values.get("working_dir", "")


_HAS_ERRORS = sys.version_info >= (3, 9)


def values_of(configuration: Configuration) -> Dict[str, str]:
    """The values of EntryScript, from the worker's configuration."""
    return {
        "agent_name": configuration.process_name,
        "log_dir": configuration.log_folder,
        "logging_level": configuration.logging_level,
        "output_dir": configuration.output_path,
        "working_dir": configuration.code_folder,
    }


def offer(values: Dict[str, Any]) -> None:
    """Sets the values that `EntryScript` returns. `children` makes the class importable under its original name."""
    _values.update(values)


def install_root_handler() -> None:
    """Sends Python's logging to standard output, INFO and up (docs/reference/azure-ml/parallel-job.md#workers)."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(_LINE))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
