"""Writes what an image holds, as CycloneDX 1.6, to standard output: `python sbom.py PYTHON PYPROJECT`.

It runs while docker/Dockerfile builds the image. PYTHON is the interpreter of the environment with Windrow's
dependencies; PYPROJECT is the pyproject.toml that describes Windrow itself. Debian's packages are in it, too, and the
Python that the base image brings. The same image gives the same bytes.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from spdx import licence

COPYRIGHT = Path("/usr/share/doc")


def main(python: str, project: str) -> int:
    """Returns the exit code."""
    tool = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", project, "--output-reproducible"]
    told = subprocess.run([*tool, "--no-validate", "--sv", "1.6", python], stdout=subprocess.PIPE, check=True).stdout
    document: dict[str, Any] = json.loads(told)
    found = {_plain(one.metadata["Name"]): licence(one) for one in distributions(path=[_packages(python)])}
    for component in document["components"]:
        # The tool does not know all that older packages say.
        component.pop("licenses", None)
        if expression := found.get(_plain(component["name"])):
            component["licenses"] = _licences(expression)
    document["components"] += [_python(), *_debian()]
    text = json.dumps(document, indent=1, sort_keys=True)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        print(f"sbom: this is not CycloneDX 1.6: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _packages(python: str) -> str:
    """The folder of an environment's packages."""
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _licences(expression: str) -> list[dict[str, object]]:
    """As the format wants them: one licence by its id, several as an expression."""
    if re.search(r"\s", expression):
        return [{"expression": expression, "acknowledgement": "declared"}]
    return [{"license": {"id": expression, "acknowledgement": "declared"}}]


def _python() -> dict[str, object]:
    """The interpreter that the base image brings: some build it themselves, and Debian's list then does not have it."""
    version = platform.python_version()
    return {
        "type": "application",
        "bom-ref": f"cpython@{version}",
        "name": "cpython",
        "version": version,
        "purl": f"pkg:generic/cpython@{version}",
        "licenses": _licences("PSF-2.0"),
    }


def _debian() -> Iterator[dict[str, object]]:
    """The packages of Debian, by name."""
    shape = "${Package}\t${Version}\t${Architecture}\t${db:Status-Status}\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", shape], stdout=subprocess.PIPE, text=True, check=True).stdout
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.M))
    for line in sorted(listed.splitlines()):
        name, version, architecture, status = line.split("\t")
        if status != "installed":
            continue
        where = f"arch={architecture}&distro={release['ID']}-{release['VERSION_ID']}"
        purl = f"pkg:deb/{release['ID']}/{name}@{version.replace(':', '%3A').replace('+', '%2B')}?{where}"
        component: dict[str, object] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
        }
        if names := _debian_licences(name):
            component["licenses"] = [{"license": {"name": one, "acknowledgement": "declared"}} for one in names]
        yield component


def _debian_licences(package: str) -> list[str]:
    """The licences of a package's files, as its copyright file names them; nothing where that is free text."""
    try:
        text = (COPYRIGHT / package / "copyright").read_text(errors="replace")
    except OSError:
        return []
    if not text.startswith("Format:"):
        return []
    return sorted(set(re.findall(r"^License:[ \t]+(\S.*?)[ \t]*$", text, re.M)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
