"""Environments: what builders are told, what their words mean, and what a step needs beside its own list."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.environments.environment_spec import build_variables, conda_variables, environment_spec
from windrow_agent.environments.failures import failure_of
from windrow_agent.environments.libraries import needed_libraries
from windrow_agent.environments.provider import folder_of
from windrow_agent.workers.variables import passed_variables


def test_uv_gets_what_reaches_indexes_and_no_other_credentials() -> None:
    agent = {
        "HOME": "/home/me",
        "UV_INDEX_HOUSE_PASSWORD": "secret",
        "PIP_INDEX_URL": "https://one.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://two.example/simple https://three.example/simple",
        "PIP_FIND_LINKS": "/a /b",
        "HTTPS_PROXY": "http://proxy.example",
        "UV_PYTHON": "3.8",
        "AWS_SECRET_ACCESS_KEY": "no",
        "VIRTUAL_ENV": "/somewhere",
        "PYTHONPATH": "/somewhere",
        "UV_INDEX": "",
    }
    variables = build_variables(agent)
    assert variables["UV_DEFAULT_INDEX"] == "https://one.example/simple"
    assert variables["UV_INDEX"] == "https://two.example/simple https://three.example/simple"
    assert variables["UV_FIND_LINKS"] == "/a,/b"
    assert variables["UV_INDEX_HOUSE_PASSWORD"] == "secret"
    assert variables["HTTPS_PROXY"] == "http://proxy.example"
    assert variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert not {"UV_PYTHON", "AWS_SECRET_ACCESS_KEY", "VIRTUAL_ENV", "PYTHONPATH"} & variables.keys()
    # What is said to uv itself wins.
    assert build_variables({**agent, "UV_INDEX_URL": "https://uv.example"})["UV_INDEX_URL"] == "https://uv.example"
    assert "UV_DEFAULT_INDEX" not in build_variables({**agent, "UV_INDEX_URL": "https://uv.example"})


def test_lists_that_differ_in_anything_are_environments_of_their_own() -> None:
    lists = [
        work.Environment(requirements=["a"]),
        work.Environment(requirements=["b"]),
        work.Environment(constraints=["a"]),
        work.Environment(requirements=["a"], python="3.10"),
        work.Environment(requirements=["a"], options=["--pre"]),
        work.Environment(requirements=["a", "b"]),
        work.Environment(requirements=["b", "a"]),
    ]
    digests = [environment_spec(one, sys.executable).digest for one in lists]
    assert len(set(digests)) == len(lists)
    assert environment_spec(lists[0], sys.executable).digest == digests[0]
    # Another interpreter matters where the list names no version.
    assert environment_spec(lists[0], "/bin/sh").digest != digests[0]
    assert environment_spec(lists[3], "/bin/sh").digest == digests[3]


def test_conda_s_builder_gets_what_reaches_channels_and_no_other_credentials() -> None:
    agent = {
        "HOME": "/home/me",
        "RATTLER_AUTH_FILE": "/home/me/channels.json",
        "CONDA_OVERRIDE_CUDA": "12",
        "HTTPS_PROXY": "http://proxy.example",
        "UV_INDEX_HOUSE_PASSWORD": "no",
        "AWS_SECRET_ACCESS_KEY": "no",
        "PYTHONPATH": "/somewhere",
    }
    kept = {name: agent[name] for name in ("HOME", "RATTLER_AUTH_FILE", "CONDA_OVERRIDE_CUDA", "HTTPS_PROXY")}
    assert conda_variables(agent) == kept


def test_a_list_is_another_environment_where_conda_s_packages_can_be_had() -> None:
    plain = work.Environment(requirements=["numpy", "a"], python="3.10")
    lists = [
        work.CondaList(specs=["numpy", "r-base"], pip=["a"]),
        work.CondaList(specs=["numpy", "r-base=4"], pip=["a"]),
        work.CondaList(specs=["numpy", "r-base"], pip=["a"], channels=["conda-forge"]),
        work.CondaList(specs=["numpy", "r-base"], pip=["b"]),
    ]
    digests = {environment_spec(plain, sys.executable).digest}
    for conda in lists:
        wanted = work.Environment(requirements=["numpy", "a"], python="3.10", conda=conda)
        # Without the builder, it is what it always was.
        assert environment_spec(wanted, sys.executable) == environment_spec(plain, sys.executable)
        spec = environment_spec(wanted, sys.executable, builds_conda=True)
        assert spec.conda == conda and spec.requirements == f"{conda.pip[0]}\n"
        assert environment_spec(wanted, "/bin/sh", builds_conda=True).digest == spec.digest, "it has its own Python"
        digests.add(spec.digest)
    assert len(digests) == 1 + len(lists)
    assert environment_spec(plain, sys.executable, builds_conda=True) == environment_spec(plain, sys.executable)


def test_scripts_in_a_conda_environment_are_told_as_if_it_were_active(tmp_path: Path) -> None:
    agent = {"PATH": "/bin", "VIRTUAL_ENV": "/own", "CONDA_PREFIX": "/own", "CONDA_SHLVL": "1", "PYTHONPATH": "/own"}
    assert passed_variables(agent, built=str(tmp_path)) == {
        "PATH": f"{tmp_path}/bin:/bin",
        "VIRTUAL_ENV": str(tmp_path),
    }
    (tmp_path / "conda-meta").mkdir()
    assert passed_variables(agent, built=str(tmp_path)) == {
        "PATH": f"{tmp_path}/bin:/bin",
        "CONDA_PREFIX": str(tmp_path),
        "PYTHONNOUSERSITE": "1",
    }


def test_options_stand_where_uv_reads_them() -> None:
    wanted = work.Environment(requirements=["a"], options=["--extra-index-url=https://x.example", "--pre"])
    spec = environment_spec(wanted, sys.executable)
    assert spec.requirements == "--extra-index-url=https://x.example\na\n"
    assert spec.options == ("--pre",)


@pytest.mark.parametrize(
    ("words", "of_node"),
    [
        ("error: No solution found when resolving dependencies\n  cause: Because there is no version of a==9", False),
        ("error: Failed to build `a==1`\n  cause: The build backend returned an error", False),
        ("error: No interpreter found for Python 3.99 in managed installations or search path", False),
        ("error: Failed to fetch: `https://x/a.whl`\n  cause: HTTP status client error (404 Not Found)", False),
        ("error: Failed to fetch: `https://x/`\n  cause: HTTP status server error (503 Service Unavailable)", True),
        ("error: Failed to fetch: `https://x/`\n  cause: dns error", True),
        ("error: Failed to fetch: `https://x/`\n  cause: HTTP status client error (401 Unauthorized)", True),
        ("error: Failed to write\n  cause: No space left on device (os error 28)", True),
        ("uv was killed by SIGKILL", False),
        ("error: No solution found: No candidates were found for ca-certificates 9.*.", False),
        (
            "error: could not find subdir 'noarch' in channel 'https://x/'\nCaused by: no such file",
            False,
        ),
        ("error: Request failed after 3 retries\nCaused by: error sending request for url (https://x/)", True),
    ],
)
def test_whose_fault_it_is_is_told_apart(words: str, of_node: bool) -> None:
    failure = failure_of("its packages could not be installed", words)
    assert failure.of_node is of_node
    assert "--environments own" in str(failure)


def test_credentials_in_what_uv_says_are_not_passed_on() -> None:
    failure = failure_of(
        "x", "error: Failed to fetch: `https://me:secret@x.example/simple/` dns error\n" + "more\n" * 999
    )
    assert "secret" not in str(failure) + failure.detail


@pytest.mark.parametrize(
    ("reader", "rows", "libraries"),
    [
        ({"kind": "files"}, {"format": "text"}, ()),
        ({"kind": "records"}, {}, ()),
        ({"kind": "table", "format": "delimited"}, {}, ("pandas",)),
        ({"kind": "table", "format": "parquet"}, {}, ("pandas", "pyarrow")),
        ({"kind": "table", "format": "sorted_rows"}, {}, ("pandas", "pyarrow")),
        ({"kind": "files"}, {"format": "parquet"}, ("pyarrow",)),
        (
            {"kind": "inputs", "inputs": [{"kind": "table", "format": "json_lines"}, {"kind": "files"}]},
            {},
            ("pandas",),
        ),
    ],
)
def test_what_the_worker_host_needs(
    reader: dict[str, object], rows: dict[str, str], libraries: tuple[str, ...]
) -> None:
    assert needed_libraries(reader, rows) == libraries


def test_where_environments_are_kept(tmp_path: Path) -> None:
    own = tmp_path / "agent"
    assert folder_of(tmp_path / "given", own, {"HOME": "/home/me"}) == tmp_path / "given"
    cache = tmp_path / "cache"
    assert folder_of(None, own, {"XDG_CACHE_HOME": str(cache), "HOME": "/x"}) == cache / "windrow" / "environments"
    assert folder_of(None, own, {"HOME": str(tmp_path)}) == tmp_path / ".cache" / "windrow" / "environments"
    (tmp_path / "file").touch()
    assert folder_of(None, own, {"HOME": str(tmp_path / "file")}) == own / "environments"
    assert folder_of(None, own, {}) == own / "environments"
