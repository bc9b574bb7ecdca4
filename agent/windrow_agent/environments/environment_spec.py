"""What an environment is made of: its name in the cache, the lines that uv reads, the variables that builders get."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from windrow.rpc.v1 import work_pb2 as work

_FORMAT = 3
"""Raised when environments of an earlier version must no longer be used."""

_PASSED = frozenset(
    (
        *("HOME", "USER", "LOGNAME", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
        *("XDG_DATA_HOME", "XDG_BIN_HOME", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSH_AUTH_SOCK", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"),
        *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "MAKEFLAGS", "CARGO_HOME", "RUSTUP_HOME", "SOURCE_DATE_EPOCH"),
    )
)
_PASSED_PREFIXES = ("UV_", "PIP_", "GIT_", "LC_")
_PASSED_TO_CONDA = ("RATTLER_", "CONDA_", "LC_")
_OURS = ("UV_PYTHON", "UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "UV_BREAK_SYSTEM_PACKAGES", "UV_WORKING_DIRECTORY")

_OF_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_CERT": "SSL_CERT_FILE",
    "PIP_CONSTRAINT": "UV_CONSTRAINT",
    "PIP_DEFAULT_TIMEOUT": "UV_HTTP_TIMEOUT",
}
"""Settings of pip that users have set already, and uv's names for them. uv separates lists by blanks, as pip does,
except those in _WITH_COMMAS."""
_WITH_COMMAS = ("UV_FIND_LINKS",)
_OLDER_NAMES = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
_IN_FILE = re.compile(r"--(?:index-url|extra-index-url|find-links|no-index|no-binary|only-binary)\b")


class EnvironmentSpec(NamedTuple):
    """One environment. `python`: a version, or the path of the agent's own interpreter.

    `conda`: the list that is built with conda's own packages, Python included (`python` is then ""); `requirements` are
    only its lines for pip.
    """

    digest: str
    python: str
    requirements: str
    constraints: str
    options: tuple[str, ...]
    conda: work.CondaList | None = None

    @property
    def is_bare(self) -> bool:
        """Whether uv has no packages to install."""
        return not self.requirements


def environment_spec(wanted: work.Environment, own_python: str, *, builds_conda: bool = False) -> EnvironmentSpec:
    """`own_python`: the interpreter of scripts without an environment. `builds_conda`: conda lists are built with
    conda's own packages.

    Lists that differ in anything have separate environments. The same list is built again for another interpreter, and
    with conda's packages once a node can do that.
    """
    conda = wanted.conda if builds_conda and wanted.HasField("conda") else None
    requirements = wanted.requirements if conda is None else conda.pip
    base: list[object] = [wanted.python or f"{Path(own_python).resolve()} {_stamp(own_python)}"]
    if conda is not None:
        base = ["conda", list(conda.specs), list(conda.channels)]
    identity = [
        *(_FORMAT, platform.system(), platform.machine(), *base),
        *(list(lines) for lines in (requirements, wanted.constraints, wanted.options)),
    ]
    options = list(wanted.options)
    in_file = [option for option in options if _IN_FILE.match(option)]
    return EnvironmentSpec(
        digest=hashlib.sha256(json.dumps(identity).encode()).hexdigest(),
        python="" if conda is not None else wanted.python or own_python,
        requirements=_lines([*in_file, *requirements]) if requirements else "",
        constraints=_lines(wanted.constraints),
        options=tuple(option for option in options if not _IN_FILE.match(option)),
        conda=conda,
    )


def _lines(lines: object) -> str:
    return "".join(f"{line}\n" for line in lines)  # type: ignore[attr-defined]


def _stamp(python: str) -> str:
    """A text that changes when the interpreter is replaced."""
    try:
        status = Path(python).stat()
    except OSError:
        return ""
    return f"{status.st_size}-{status.st_mtime_ns}"


def build_variables(agent: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of uv: what it needs to reach indexes, with the credentials for them, and no others."""
    variables = {
        name: value
        for name, value in agent.items()
        if value and (name in _PASSED or name.startswith(_PASSED_PREFIXES)) and name not in _OURS
    }
    for pip, uv in _OF_PIP.items():
        value = agent.get(pip, "").strip()
        if value and not agent.get(uv) and not agent.get(_OLDER_NAMES.get(uv, uv)):
            variables[uv] = ",".join(value.split()) if uv in _WITH_COMMAS else value
    variables.setdefault("UV_NO_PROGRESS", "1")
    # As pip does: the best version from all indexes, not from the first index that has the name.
    variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return variables


def conda_variables(agent: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of the process that installs conda's packages: what it needs to reach channels."""
    return {
        name: value for name, value in agent.items() if value and (name in _PASSED or name.startswith(_PASSED_TO_CONDA))
    }
