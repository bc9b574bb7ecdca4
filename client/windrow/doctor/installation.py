"""Windrow itself on this machine: its Python, its version, its extras."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import NamedTuple

import windrow
from windrow.doctor.findings import OK, WARN, Finding

AREA = "Windrow"


class Extra(NamedTuple):
    """An optional part of Windrow: the modules that it needs, and its use."""

    name: str
    modules: tuple[str, ...]
    use: str


EXTRAS = (
    Extra("storage", ("obstore", "boto3"), "inputs and outputs in S3, Google Cloud Storage, Azure and on web servers"),
    Extra("partition", ("duckdb",), "partition keys that are columns of the data"),
    Extra("delta", ("deltalake",), "read_delta_lake in MLTable files"),
    Extra("conda", ("rattler",), "conda lists with packages that PyPI does not have (R, GDAL, cudatoolkit)"),
    Extra("setup", ("cryptography",), "`windrow setup`, which makes certificates and tokens"),
    Extra("kubernetes", ("kubernetes",), "`windrow fleet` with agents from Kubernetes"),
)
STARTS_WITH = ("windrow", "grpc", "google.protobuf")
"""What most commands import: the largest part of their start."""
_DISTRIBUTIONS = {"rattler": "py-rattler"}
"""Names on PyPI of modules that have another one."""


def check() -> Iterator[Finding]:
    """All findings of this area."""
    yield Finding(AREA, "version", OK, f"{windrow.__version__}, in {sys.prefix}")
    python = f"{platform.python_version()}, {sys.executable}"
    if sys.platform == "linux":
        yield Finding(AREA, "python", OK, python)
    else:
        advice = (
            "Masters and agents run only on Linux. From this machine, submit to a master on another one (windrow "
            "context add)."
        )
        yield Finding(AREA, "python", WARN, f"{python}, on {sys.platform}", advice)
    for extra in EXTRAS:
        missing = [module for module in extra.modules if find_spec(module) is None]
        if missing:
            seen = f"not installed ({', '.join(missing)}); needed for {extra.use}"
            yield Finding(AREA, extra.name, OK, seen, f"If you need that: pip install 'windrow[{extra.name}]'")
        else:
            versions = ", ".join(f"{module} {_version(module)}" for module in extra.modules)
            yield Finding(AREA, extra.name, OK, f"{versions}: {extra.use}")
    yield _uv()
    yield _bytecode()


def _bytecode() -> Finding:
    """Whether Python compiles what each command imports anew each time."""
    name = "bytecode"
    found = [spec for module in STARTS_WITH if (spec := find_spec(module)) is not None and spec.origin]
    without = [spec for spec in found if not Path(cache_from_source(str(spec.origin))).exists()]
    if not without:
        return Finding(AREA, name, OK, "there is one for what each command imports")
    folders = [Path(str(spec.origin)).parent for spec in without]
    names = ", ".join(spec.name for spec in without)
    if sys.dont_write_bytecode:
        why = "PYTHONDONTWRITEBYTECODE is set"
    elif closed := [str(folder) for folder in folders if not os.access(folder, os.W_OK)]:
        why = f"{closed[0]} cannot be written"
    else:
        return Finding(AREA, name, OK, f"Python writes it for {names} when they are imported next")
    places = " ".join(shlex.quote(str(folder)) for folder in folders)
    return Finding(
        AREA,
        name,
        WARN,
        f"none for {names}, and Python writes none ({why}): each command compiles them anew, and takes twice as long",
        f"Compile them once, as a user who may write there: {shlex.quote(sys.executable)} -m compileall -q {places}",
    )


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"


def _uv() -> Finding:
    """The tool that builds environments."""
    if find_spec("uv") is not None:
        return Finding(AREA, "uv", OK, f"{_version('uv')}: environments of steps (conda and pip lists)")
    found = shutil.which("uv")
    if found is not None:
        return Finding(AREA, "uv", OK, f"{found}: environments of steps (conda and pip lists)")
    return Finding(
        AREA,
        "uv",
        WARN,
        "not found; it builds the environments that steps ask for by a conda or pip list",
        "Install it (pip install uv), or choose a Python for the scripts yourself (--python PATH).",
    )
