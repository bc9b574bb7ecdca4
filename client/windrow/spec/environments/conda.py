"""The conda file of an environment: its dependencies as a version of Python and requirement lines for PyPI.

Packages come from PyPI, under their names there, and warnings say what differs. If PyPI does not have all of them, the
list is kept as it is written, too: nodes that have the extra `conda` build it with conda's own packages. Reference:
docs/reference/azure-ml/parallel-job.md#tasks; docs/reference/azure-ml/client.md#dumped-jobs (`conda_file` as a
mapping); conda's match specs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from windrow.spec.effective.job import CondaList, Environment
from windrow.spec.environments.requirement_lines import (
    CREDENTIALS,
    Requirements,
    read_requirement,
    warn_of_credentials,
)
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence, is_null, shown
from windrow.spec.reading.problems import did_you_mean, listed

OLDEST_PYTHON = (3, 8)
"""The oldest version of Python that the worker host runs on."""

_PYTHON_VERSION = re.compile(r"[1-9](?:\.\d+){0,2}(?:(?:a|b|rc)\d+)?t?(?:\.?\*)?", re.ASCII)

_KEYS = ("name", "channels", "dependencies", "prefix", "variables", "platforms", "category")
_USUAL_CHANNELS = frozenset(
    ("defaults", "conda-forge", "anaconda", "main", "r", "msys2", "nodefaults", "pytorch", "nvidia", "microsoft")
)
_SPEC = re.compile(
    r"(?:[\w./:-]+::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<version>[^\[\s]?[^\[]*?)\s*(?:\[(?P<inner>[^\]]*)\])?"
)
_INNER_VERSION = re.compile(r"""\bversion\s*=\s*(?:'([^']*)'|"([^"]*)"|([^,\s]+))""")
_TOKEN = re.compile(r"/t/[^/$]+/")
"""In the address of a channel: what it is opened with, as in https://conda.anaconda.org/t/<token>/mine."""
_CLAUSE = re.compile(r"(===?|~=|!=|<=|>=|=|<|>)?\s*([0-9A-Za-z][\w.!+-]*(?:\.?\*)?)", re.ASCII)

# Most packages have the same name on PyPI. These have another one.
_NAMES = {
    "black-jupyter": "black",
    "brotli-python": "brotli",
    "dask-core": "dask",
    "faiss": "faiss-cpu",
    "keras-gpu": "keras",
    "lightgbm-gpu": "lightgbm",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "numpy-base": "numpy",
    "onnxruntime-cpu": "onnxruntime",
    "opencv": "opencv-python-headless",
    "py-lightgbm": "lightgbm",
    "py-opencv": "opencv-python-headless",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "pytables": "tables",
    "python-blosc": "blosc",
    "python-flatbuffers": "flatbuffers",
    "python-graphviz": "graphviz",
    "python-kaleido": "kaleido",
    "python-lmdb": "lmdb",
    "python-tzdata": "tzdata",
    "python-xxhash": "xxhash",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "ruamel_yaml": "ruamel.yaml",
    "seaborn-base": "seaborn",
    "tensorflow-base": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-mkl": "tensorflow",
    "torchvision-cpu": "torchvision",
    "uvicorn-standard": "uvicorn",
}

# PyPI does not have these libraries and programs. Wheels bring the libraries along, so a warning is enough.
_NO_TWIN = """
arrow-cpp blas boost-cpp bzip2 c-ares c-compiler ca-certificates conda conda-libmamba-solver cpuonly cudatoolkit
cudnn curl cxx-compiler ffmpeg fftw fontconfig fortran-compiler freetype geos gflags gfortran giflib git git-lfs
glib glog gmp gnutls gperftools grpc-cpp hdf5 icu jemalloc jpeg krb5 lame lcms2 lerc llvm-openmp lz4-c make mamba
mpc mpfr mpi mpich nccl ncurses netcdf4-c nettle nodejs nomkl openblas openh264 openjdk openjpeg openmpi openssl
orc pandoc parquet-cpp perl pixman pkg-config poppler proj python_abi pytorch-cuda pytorch-mutex r rdma-core re2
readline s2n snappy sqlite tbb tesseract thrift-cpp tini tk tzdata ucx unixodbc unzip utf8proc wget x264 x265 xz
yaml zlib zlib-ng zstd
"""

# PyPI has only the source of these, which needs conda's library of the same version to compile.
_SOURCE_ALONE = frozenset(("gdal",))

_LIBRARIES_OF_PYTHON = frozenset(
    ("aws-cdk-lib", "cuda-python", "libclang", "libcst", "libpysal", "librosa", "libsass", "libtmux", "libusb1")
)


def read_conda(node: Mapping, key: str, context: Context) -> Environment | None:
    """Reads the content of a conda file; None, with an error, if it cannot be read."""
    before = len(context.problems.errors)
    for name in node.entries:
        if name not in _KEYS:
            context.problems.warn(
                node.key_places[name], key, f'"{name}" is unknown in a conda file.{did_you_mean(name, _KEYS)}'
            )
    variables = as_mapping(node.entries.get("variables"), key, context)
    if variables is not None and variables.entries:
        context.problems.warn(
            variables, key, '"variables" has no effect; write them as environment_variables of the step.'
        )
    dependencies = node.entries.get("dependencies")
    if dependencies is None or is_null(dependencies):
        context.problems.error(node, key, 'has no "dependencies"; a conda file needs a list of them.')
        return None
    if not isinstance(dependencies, Sequence):
        context.problems.error(dependencies, key, f'"dependencies" is {shown(dependencies)}; it must be a list.')
        return None
    reader = _Reader(key, context)
    for item in dependencies.items:
        reader.read(item)
    python = reader.python()
    channels = _read_channels(node.entries.get("channels"), key, context, reader)
    reader.tell(node.place)
    if len(context.problems.errors) > before:
        return None
    lines = reader.found
    return Environment(
        python,
        tuple(lines.requirements),
        tuple(lines.constraints),
        tuple(lines.options),
        None if reader.conda is None else reader.conda._replace(channels=channels),
    )


def _read_channels(node: Node | None, key: str, context: Context, reader: _Reader) -> tuple[str, ...]:
    if not isinstance(node, Sequence):
        return ()
    names = [item.text.strip() for item in node.items if isinstance(item, Scalar) and item.text.strip()]
    others = [name for name in names if name.rstrip("/").rpartition("/")[2].casefold() not in _USUAL_CHANNELS]
    if others and not reader.is_built_with_conda:
        context.problems.warn(
            node,
            key,
            f"channels have no effect: packages come from PyPI (named here: {listed(others)}). Put a package that only "
            "a channel has on an index, and name the index with --extra-index-url among the pip lines.",
        )
    if reader.conda is not None:
        for item in node.items:
            if isinstance(item, Scalar) and (CREDENTIALS.search(item.text) or _TOKEN.search(item.text)):
                warn_of_credentials(item.place, key, context, "~/.netrc, or in the file that RATTLER_AUTH_FILE names")
    return tuple(names)


class _Reader:
    """Reads the dependencies of a conda file."""

    def __init__(self, key: str, context: Context) -> None:
        self.found = Requirements.none()
        self._key = key
        self._context = context
        self._renamed: list[str] = []
        self._left_out: list[str] = []
        self._source_alone: list[str] = []
        self._pythons: list[_PythonClause] = []
        self._specs: list[str] = []
        self._pip_lines: list[str] = []

    def read(self, item: Node) -> None:
        problems = self._context.problems
        if isinstance(item, Mapping):
            for name, lines in item.entries.items():
                if name == "pip":
                    self._pip(lines)
                else:
                    problems.error(item, self._key, f'"{name}" is not a known installer; only pip is allowed.')
        elif isinstance(item, Scalar) and isinstance(item.value, str) and item.text.strip():
            self._conda(item.text.strip(), item.place)
        else:
            problems.error(
                item, self._key, f"is {shown(item)}; a dependency is text, such as numpy=1.26, or a list for pip."
            )

    @property
    def conda(self) -> CondaList | None:
        """The list as it is written, if PyPI does not have all of its packages."""
        if not self._left_out and not self._source_alone:
            return None
        return CondaList(tuple(self._specs), pip=tuple(self._pip_lines))

    @property
    def is_built_with_conda(self) -> bool:
        """Whether this machine is the one that builds the list, and does so with conda's own packages."""
        if self.conda is None or not self._context.embedded:
            return False
        # Not at the top: few lists need it, and the first run() waits for imports.
        from windrow.common.conda_builder import has_conda_builder

        return has_conda_builder()

    def tell(self, place: Place) -> None:
        """Tells of packages that are renamed or left out, or that the list is built with conda's own."""
        problems = self._context.problems
        if self.is_built_with_conda:
            lacking = listed([*self._left_out, *self._source_alone])
            problems.note(
                place, self._key, f"the whole list is built from conda's channels, since PyPI does not have {lacking}."
            )
            return
        told = []
        if self._renamed:
            told.append(f"{listed(self._renamed)}, by their names there")
        if self._source_alone:
            told.append(f"{listed(self._source_alone)}, of which PyPI has only the source")
        if self._left_out:
            told.append(f"without {listed(self._left_out)}, which PyPI does not have (wheels bring their libraries)")
        if not told:
            return
        message = f"conda packages are installed from PyPI: {'; '.join(told)}."
        if self.conda is not None:
            from windrow.common.conda_builder import INSTALL

            where = "here" if self._context.embedded else "on the nodes"
            message += f" To have the whole list built from its channels, install the builder {where}: {INSTALL}."
        problems.warn(place, self._key, message)

    def _pip(self, lines: Node) -> None:
        if is_null(lines):
            return
        if isinstance(lines, Scalar):
            lines = Sequence(lines.place, (lines,))
        if not isinstance(lines, Sequence):
            self._context.problems.error(lines, self._key, f'"pip" is {shown(lines)}; it must be a list of lines.')
            return
        before = len(self.found.requirements)
        for line in lines.items:
            if isinstance(line, Scalar) and line.value is not None:
                read_requirement(line.text, line.place, self._key, self.found, self._context)
            else:
                self._context.problems.error(line, self._key, f"is {shown(line)}; a line for pip is text.")
        self._pip_lines += self.found.requirements[before:]

    def _conda(self, text: str, place: Place) -> None:
        spec = _SPEC.fullmatch(text)
        versions = None if spec is None else _versions(spec["version"], spec["inner"])
        if spec is None or versions is None:
            self._context.problems.error(
                place,
                self._key,
                f'"{text[:120]}" is not a valid dependency; write a name and versions, as in numpy=1.26 or '
                '"numpy>=1.24,<2".',
            )
            return
        name = spec["name"]
        self._specs.append(text)
        if name.casefold() == "python":
            self._python(text, versions, place)
            return
        found = pypi_name(name)
        if found is None:
            self._left_out.append(name)
            return
        if found in _SOURCE_ALONE:
            self._source_alone.append(name)
        if found != name.casefold():
            self._renamed.append(f"{name} as {found}")
        self.found.requirements.append(found + ",".join(_pep440(*version) for version in versions))

    def _python(self, text: str, versions: list[tuple[str, str]], place: Place) -> None:
        for operator, version in versions:
            if not _PYTHON_VERSION.fullmatch(version):
                self._context.problems.error(
                    place,
                    self._key,
                    f'"{text}" asks for "{version}", which is not a version of Python; write it as in python=3.10 or '
                    '"python>=3.9,<3.12".',
                )
                return
            stem = version.rstrip("*").rstrip(".")
            self._pythons.append(_PythonClause(operator, stem, version.endswith("*"), text, place))

    def python(self) -> str | None:
        """The version of Python that all entries together ask for; None for any."""
        for clause in self._pythons:
            other = next((other for other in self._pythons if _excludes(other, clause)), None)
            if other is not None:
                texts = dict.fromkeys(f'"{one.text}"' for one in (other, clause))
                why = f"no version of Python matches {' and '.join(texts)}; change or remove one of the bounds."
                self._context.problems.error(
                    max(other.place, clause.place, key=lambda place: (place.line, place.column)), self._key, why
                )
                return None
        asked, too_old = _python_request(self._pythons)
        if too_old is not None:
            self._context.problems.warn(
                too_old.place,
                self._key,
                f'"{too_old.text}" asks for a Python that is too old: scripts need '
                f"{'.'.join(map(str, OLDEST_PYTHON))} or newer. The version that the agents have is used instead.",
            )
            asking = [clause.text for clause in self._pythons]
            self._specs = [text for text in self._specs if text not in asking]
        return asked


class _PythonClause(NamedTuple):
    """One bound on the version of Python; `starred`: it ends in a star, which `version` does not contain."""

    operator: str
    version: str
    starred: bool
    text: str
    place: Place

    @property
    def is_exact(self) -> bool:
        """Whether it asks for one version, or for all versions with one prefix."""
        return self.operator in ("=", "==", "===")


def _versions(version: str, inner: str | None) -> list[tuple[str, str]] | None:
    """The clauses (operator, version) of a match spec without its build; None if it cannot be read."""
    if inner and (found := _INNER_VERSION.search(inner)):
        version = found[1] or found[2] or found[3]
    version = version.strip()
    if not version or version == "*":
        return []
    if not any(sign in version for sign in "<>!~,|"):
        # name=1.2=build, name==1.2=build, or separated by spaces: name 1.2 build
        operator = "==" if version.startswith("==") else "="
        parts = version.lstrip("=").replace("=", " ").split()
        return _clauses([operator + parts[0]]) if parts and len(parts) <= 2 else None
    return _clauses(version.split(","))


def _clauses(parts: list[str]) -> list[tuple[str, str]] | None:
    clauses: list[tuple[str, str]] = []
    for part in parts:
        found = _CLAUSE.fullmatch(part.strip())
        if found is None:
            return None
        clauses.append((found[1] or "==", found[2]))
    return clauses


def _pep440(operator: str, version: str) -> str:
    """A clause of conda in PyPI's notation: `=1.2` means every 1.2.x."""
    starred = version.endswith("*")
    stem = version.rstrip("*").rstrip(".")
    if operator == "=" or (starred and operator in ("==", "!=")):
        return f"{'==' if operator == '=' else operator}{stem}.*"
    # `>=1.2.*` means what `>=1.2` does; PyPI does not accept a star there.
    return f"{operator}{stem}" if starred else f"{operator}{version}"


def _excludes(clause: _PythonClause, exact: _PythonClause) -> bool:
    """Whether no version that `exact` asks for satisfies `clause`."""
    if not exact.is_exact:
        return False
    bound, wanted = _numbers(clause.version), _numbers(exact.version)
    common = min(len(bound), len(wanted))
    is_same, is_whole = bound[:common] == wanted[:common], len(wanted) >= len(bound)
    match clause.operator:
        case "=" | "==" | "===":
            return not is_same
        case "!=":
            return is_same and is_whole and (clause.starred or len(bound) == 3)
        case "<":
            return wanted[:common] > bound[:common] or (is_same and is_whole)
        case "<=":
            return wanted[:common] > bound[:common]
        case "~=":
            # All parts but the last are fixed: ~=3.9.2 means 3.9, from 3.9.2 on.
            fixed = min(common, len(bound) - 1)
            return wanted[:common] < bound[:common] or wanted[:fixed] > bound[:fixed]
    return wanted[:common] < bound[:common]


def _python_request(clauses: list[_PythonClause]) -> tuple[str | None, _PythonClause | None]:
    """The version of Python to ask for (None for any), and the clause that asks for one that is too old."""
    exact = [clause for clause in clauses if clause.is_exact]
    too_old = next((clause for clause in clauses if _is_too_old(clause)), None)
    if too_old is not None:
        return None, too_old
    narrowest = max(exact, key=lambda clause: len(_numbers(clause.version)), default=None)
    if narrowest is not None and all(clause.is_exact for clause in clauses):
        return (narrowest.version if len(_numbers(narrowest.version)) > 1 else None), None
    bounds = []
    is_older = False
    for clause in clauses:
        if clause.operator in (">", ">=", "~=") and _numbers(clause.version)[:2] < OLDEST_PYTHON:
            is_older = True
        elif clause.is_exact and clause is not narrowest:
            continue
        elif clause.is_exact:
            bounds.append(f"=={clause.version}" + (".*" if len(_numbers(clause.version)) < 3 else ""))
        else:
            is_prefix = clause.operator == "!=" and clause.starred
            bounds.append(f"{clause.operator}{clause.version}" + (".*" if is_prefix else ""))
    if bounds and is_older:
        bounds.insert(0, f">={'.'.join(map(str, OLDEST_PYTHON))}")
    return ",".join(bounds) or None, None


def _is_too_old(clause: _PythonClause) -> bool:
    """Whether the worker host cannot run on any version that satisfies a clause."""
    numbers = _numbers(clause.version)
    match clause.operator:
        case "=" | "==" | "===":
            return numbers < OLDEST_PYTHON[: len(numbers)]
        case "<":
            return numbers <= OLDEST_PYTHON
        case "<=":
            return numbers < OLDEST_PYTHON
        case "~=":
            return len(numbers) == 3 and numbers[:2] < OLDEST_PYTHON
    return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def pypi_name(name: str) -> str | None:
    """The name on PyPI of a conda package; None if PyPI does not have it (a library, a compiler, a program)."""
    folded = name.casefold()
    if folded in _NAMES:
        return _NAMES[folded]
    if folded in _NO_TWIN.split():
        return None
    if _begins_without_twin(folded) and folded not in _LIBRARIES_OF_PYTHON:
        return None
    return folded


def _begins_without_twin(name: str) -> bool:
    """Whether a name belongs to a family without a counterpart on PyPI: conda's own (`_openmp_mutex`), C libraries
    (`libgcc-ng`), compilers, R.
    """
    if name.startswith("_"):
        return True
    prefixes = ("aws-c-", "aws-sdk-", "binutils", "cuda-", "gcc_", "gxx_", "kernel-headers", "ld_impl", "lib")
    return name.startswith((*prefixes, "r-", "sysroot_", "xorg-")) or name in ("gcc", "gxx", "aws-checksums")
