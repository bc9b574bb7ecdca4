"""Masters by name: what is kept of them, who may read it, and which one a command goes to."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import windrow
import windrow_command
from client_workspace import Workspace, served_master
from windrow.cli.options.master_choice import master_options
from windrow.errors import UsageError
from windrow.rpc.contexts import Access, Contexts, access_from_json, find_access
from windrow_master.setup.authority import Authority

TOKEN = "5ec2e7" * 10
CA = Authority.make().certificate_pem.decode().strip()
DAMAGED = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of contexts."""
    monkeypatch.setenv("WINDROW_CONTEXTS", str(tmp_path / "config" / "contexts.json"))
    for name in ("WINDROW_MASTER", "WINDROW_STATE", "WINDROW_CA_FILE", "WINDROW_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "contexts.json"


def command(workspace: Workspace, *arguments: str, stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    """The command, with a file of contexts in the workspace."""
    environment = workspace.environment(WINDROW_CONTEXTS=str(workspace.folder / "contexts.json"), **extra)
    return windrow_command.windrow(*arguments, cwd=workspace.folder, environment=environment, stdin=stdin)


# The file.


def test_interrupted_it_leaves_no_token_behind(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def interrupted_open(path: Any, *arguments: Any, **options: Any) -> int:
        descriptor = opened(path, *arguments, **options)
        if ".contexts-" in str(path):
            os.close(descriptor)
            raise KeyboardInterrupt
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", interrupted_open)
        with pytest.raises(KeyboardInterrupt):
            Contexts().add("one", Access("one:1", CA, TOKEN))
    assert not list(file.parent.iterdir())


def test_only_its_user_may_read_it(file: Path) -> None:
    mask = os.umask(0)
    try:
        Contexts().add("one", Access("one:1", CA, TOKEN))
        Contexts().add("two", Access("two:2"))
    finally:
        os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_first_is_in_use_until_another_is_chosen(file: Path) -> None:
    assert Contexts().in_use() is None
    Contexts().add("one", Access("one:1", CA, TOKEN))
    Contexts().add("two", Access("two:2"))
    assert Contexts().in_use() == Access("one:1", CA, TOKEN)
    Contexts().add("one", Access("one:11"))
    assert Contexts().in_use() == Access("one:11"), "replaced, and still in use"
    Contexts().use("two")
    assert Contexts().in_use() == Access("two:2")
    Contexts().remove("one")
    assert Contexts().in_use() == Access("two:2")
    Contexts().remove("two")
    assert Contexts().in_use() is None
    Contexts().add("three", Access("three:3"))
    Contexts().use("none")
    assert Contexts().in_use() is None and list(Contexts().all) == ["three"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"contexts": []}', b'{"contexts": {"a": {}}}', b'{"contexts": {"a": 1}}', b"\xff"]
)
def test_a_damaged_file_is_told_of_and_left_alone(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(str(file))):
        Contexts()
    with pytest.raises(UsageError, match=re.escape(str(file))):
        find_access(None, {})
    assert find_access("host:1", {}) == Access("host:1"), "who names an address needs no contexts"
    assert file.read_bytes() == content


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WINDROW_CONTEXTS", str(tmp_path / "file" / "contexts.json"))
    with pytest.raises(UsageError, match="cannot be"):
        Contexts().add("one", Access("one:1"))


@pytest.mark.parametrize("name", ["", "none", "a b", "a/b", "-a", "a:1", "ä", "x" * 65])
def test_names_that_no_context_has(file: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a context"):
        Contexts().add(name, Access("one:1"))
    assert not file.exists()


# What is in it.


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/master"])
def test_a_token_that_stays_on_this_machine_needs_no_tls(address: str) -> None:
    assert Access(address, "", TOKEN).check().token == TOKEN


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (Access("one"), "not a master address"),
        (Access("one:1", "no pem", TOKEN), "not a certificate"),
        (Access("one:1", "ä", TOKEN), "not a certificate"),
        (Access("one:1", DAMAGED, TOKEN), "or is damaged"),
        (Access("one:1", "", TOKEN), "over TLS only"),
        (Access("one:1", CA, TOKEN + "\n" + TOKEN), "invalid characters"),
        (Access("one:1", CA, "tökén"), "invalid characters"),
    ],
)
def test_parts_that_do_not_go_together(access: Access, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        access.check()
    assert TOKEN not in str(caught.value)


def test_a_token_is_not_shown() -> None:
    access = Access("one:1", CA, TOKEN)
    assert TOKEN not in f"{access} {access!r} {[access]}"
    assert access_from_json(access.to_json()) == access


def test_nothing_from_the_command_before() -> None:
    with pytest.raises(UsageError, match="The exported context is empty"):
        access_from_json(" \n")


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"address": 1}', "x" * 10])
def test_what_is_no_exported_context(text: str) -> None:
    with pytest.raises(UsageError, match="not an exported context"):
        access_from_json(text)


# The commands.


def test_a_context_is_handed_on(workspace: Workspace) -> None:
    (workspace.folder / "ca.pem").write_text(CA + "\n")
    (workspace.folder / "token").write_text(TOKEN + "\n")
    files = ["--ca-file", "ca.pem", "--token-file", "token"]
    added = command(workspace, "context", "add", "prod", "--master", "gpu1:8470", *files)
    assert added.stdout == "Context prod (gpu1:8470) added, and in use\n"
    exported = command(workspace, "context", "export")
    assert access_from_json(exported.stdout) == Access("gpu1:8470", CA, TOKEN)
    again = command(workspace, "context", "add", "copy", "-", stdin=exported.stdout)
    assert again.stdout == "Context copy (gpu1:8470) added. To use it: windrow context use copy\n"
    (workspace.folder / "exported").write_text(exported.stdout)
    assert command(workspace, "context", "add", "copy", "exported").returncode == 0
    elsewhere = command(workspace, "context", "export", "copy", "--address", "public.example:443")
    assert access_from_json(elsewhere.stdout) == Access("public.example:443", CA, TOKEN)
    named = {"WINDROW_MASTER": "other:1", "WINDROW_CA_FILE": "ca.pem", "WINDROW_TOKEN_FILE": "token"}
    by_environment = command(workspace, "context", "export", **named)
    assert access_from_json(by_environment.stdout) == Access("other:1", CA, TOKEN)
    listed = command(workspace, "context", "list")
    assert [line.split() for line in listed.stdout.splitlines()[1:]] == [
        ["copy", "gpu1:8470", "yes", "yes"],
        ["*", "prod", "gpu1:8470", "yes", "yes"],
    ]
    as_json = command(workspace, "context", "list", "--format", "json")
    assert [row["name"] for row in json.loads(as_json.stdout)] == ["copy", "prod"]
    assert command(workspace, "context", "use", "copy").stdout == "Context copy (gpu1:8470) is in use\n"
    assert command(workspace, "context", "remove", "copy").stdout == (
        "Context copy is removed, and none is in use now: windrow context use prod\n"
    )
    assert command(workspace, "context", "use", "none").stdout == "No context is in use\n"
    shown = "".join(done.stdout + done.stderr for done in (added, again, listed, as_json))
    assert TOKEN not in shown


@pytest.mark.parametrize("content", ["hello", DAMAGED])
def test_an_agent_is_not_started_with_certificates_that_are_none(workspace: Workspace, content: str) -> None:
    (workspace.folder / "ca.pem").write_text(content)
    done = command(workspace, "agent", "--master", "127.0.0.1:1", "--ca-file", "ca.pem")
    assert done.returncode == 2
    assert "The content of ca.pem is not a certificate" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--worker-memory", "4"], "--worker-memory 4: expected a size such as 4GB"),
        (["--worker-memory", "1MB"], "a worker needs at least 33.6 MB"),
        (["--control-groups", "off", "--worker-processes", "100"], "--worker-processes needs control groups"),
        (["--control-groups", "off", "--worker-memory", "4GB"], "--worker-memory needs control groups"),
        (["--job-users", "some"], "--job-users some: expected off, auto, or a range of user numbers"),
        (["--job-users", "200000-200009", "--user", "nobody"], "needs an agent that stays root, and --user nobody"),
    ],
)
def test_an_agent_is_not_started_with_limits_that_would_have_no_effect(
    workspace: Workspace, options: list[str], words: str
) -> None:
    done = command(workspace, "agent", "--master", "127.0.0.1:1", *options)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "x"], "Give either an exported context (a file, or -) or --master ADDRESS"),
        (["add", "x", "-", "--master", "a:1"], "Give either"),
        (["add", "x", "-", "--token-file", "token"], "belong to --master"),
        (["add", "x", "-"], "not an exported context"),
        (["add", "x", "missing"], "missing, which cannot be read"),
        (["add", "x", "--master", "nowhere"], "not a master address"),
        (["add", "x", "--master", "a:1", "--token-file", "token"], "over TLS only"),
        (["add", "x", "--master", "a:1", "--ca-file", "token"], "not a certificate"),
        (["add", "x", "--master", "a:1", "--ca-file", "empty"], "which is empty"),
        (["add", "a b", "--master", "a:1"], "cannot be the name of a context"),
        (["use", "x"], "There is no context named 'x'. Existing contexts: none yet; add one"),
        (["remove", "x"], "There is no context named 'x'"),
        (["export", "x"], "There is no context named 'x'"),
        (["export"], "Which context?"),
    ],
)
def test_bad_usage_changes_nothing_and_shows_no_token(workspace: Workspace, arguments: list[str], words: str) -> None:
    (workspace.folder / "token").write_text(TOKEN)
    (workspace.folder / "empty").write_text("")
    done = command(workspace, "context", *arguments, stdin=TOKEN)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())
    assert TOKEN not in done.stderr and "Traceback" not in done.stderr
    assert not (workspace.folder / "contexts.json").exists()


# Which master a command goes to.


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Two masters, in contexts `a` and `b` (in use), and a state folder; each with a job of its own name."""
    workspace = Workspace(tmp_path_factory.mktemp("places"))
    workspace.write(["raise"], error_threshold=0, name="name: local")
    assert workspace.run("run", "job.yml").returncode == 1
    with contextlib.ExitStack() as masters:
        for name in ("a", "b"):
            address = masters.enter_context(
                served_master(workspace, workspace.folder, Path(f"{workspace.folder}-{name}"))
            )
            assert command(workspace, "context", "add", name, "--master", address).returncode == 0
            with windrow.Client(access=Access(address)) as client:
                client.submit(workspace.job_file, name=name)
        assert command(workspace, "context", "use", "b").returncode == 0
        yield workspace


@pytest.mark.parametrize(
    ("typed", "environment", "expected"),
    [
        ("", {}, "b"),
        ("", {"WINDROW_MASTER": "a"}, "a"),
        ("", {"WINDROW_STATE": ".windrow"}, "local"),
        ("", {"WINDROW_STATE": ".windrow", "WINDROW_MASTER": "a"}, "local"),
        ("--master a", {}, "a"),
        ("--master=b", {"WINDROW_MASTER": "a"}, "b"),
        ("--master a", {"WINDROW_STATE": ".windrow"}, "a"),
        ("--state .windrow", {}, "local"),
        ("--state .windrow", {"WINDROW_MASTER": "a"}, "local"),
    ],
)
def test_where_a_command_goes(places: Workspace, typed: str, environment: dict[str, str], expected: str) -> None:
    done = command(places, "job", "list", "--format", "json", *typed.split(), **environment)
    assert {job["job_id"].removesuffix("-2") for job in json.loads(done.stdout)} == {expected}, done.stderr


def test_without_a_context_in_use_a_command_goes_to_the_runs_here(places: Workspace) -> None:
    assert command(places, "context", "use", "none").returncode == 0
    try:
        done = command(places, "job", "list", "--format", "json")
        assert {job["job_id"].removesuffix("-2") for job in json.loads(done.stdout)} == {"local"}
    finally:
        assert command(places, "context", "use", "b").returncode == 0


def test_a_hint_leads_to_the_job_it_is_about(places: Workspace) -> None:
    """A run is of this folder, a command without options goes elsewhere. This makes a second job there, `local-2`."""
    done = command(places, "run", "job.yml", "--restart")
    [line] = [line for line in done.stdout.splitlines() if line.startswith("What the script printed")]
    hint = line.partition("windrow job logs ")[2]
    assert hint.endswith(" --state .windrow")
    assert command(places, "job", "logs", *hint.split()).returncode == 0
    shown = command(places, "job", "show", *hint.split())
    assert line in shown.stdout.splitlines()


@pytest.mark.parametrize(
    ("typed", "environment", "in_use", "master", "state", "options"),
    [
        ("", {}, False, None, ".windrow", ""),
        ("", {}, True, None, ".windrow", " --state .windrow"),
        ("", {"WINDROW_MASTER": "a:1"}, False, None, ".windrow", " --state .windrow"),
        ("", {"WINDROW_MASTER": "no such context"}, False, None, ".windrow", " --state .windrow"),
        ("", {"WINDROW_STATE": "there"}, True, None, "there", ""),
        ("", {"WINDROW_STATE": "there"}, False, None, ".windrow", " --state .windrow"),
        ("--state 'my state'", {}, False, None, "my state", " --state 'my state'"),
        ("", {}, True, None, None, ""),
        ("--master a:1", {}, True, "a:1", None, " --master a:1"),
        ("--master used", {}, False, "used", None, " --master used"),
        ("", {"WINDROW_MASTER": "a:1"}, False, "a:1", None, ""),
        ("--master b:2", {"WINDROW_MASTER": "a:1"}, False, "b:2", None, " --master b:2"),
        ("--master b:2", {"WINDROW_STATE": "there"}, False, "b:2", "there", " --master b:2"),
        ("--state here", {"WINDROW_MASTER": "a:1"}, False, "a:1", "here", " --state here"),
    ],
)
def test_options_by_which_a_later_command_finds_the_place_again(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    environment: dict[str, str],
    in_use: bool,
    master: str | None,
    state: str | None,
    options: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["windrow", "job", "show", *typed.split()])
    Contexts().add("used", Access("used:1"))
    if not in_use:
        Contexts().use("none")
    assert master_options(master, Path(state) if state else None) == options


def test_the_sdk_takes_names_too(places: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDROW_CONTEXTS", str(places.folder / "contexts.json"))
    monkeypatch.delenv("WINDROW_MASTER", raising=False)
    for name, expected in (("a", "a"), (None, "b")):
        with windrow.Client(name) as client:
            assert [job.job_id for job in client.list_jobs()] == [expected]
    with pytest.raises(UsageError, match="Existing contexts: a, b"):
        windrow.Client("c")
