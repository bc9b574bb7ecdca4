"""Outputs that scripts write and that lie in a store: there, whole, before their mini-batch is done."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
import windrow
from s3_server import Exchange, Proxy
from storage_job import WITH_OUT, StorageJob, wait_until
from windrow.sdk.job import JobState

WRITE = (
    WITH_OUT
    + """\
    assert os.path.isdir(out), out

def run(mini_batch):
    for path in mini_batch:
        name = os.path.basename(path)
        with open(os.path.join(out, name + ".tmp"), "w") as file:
            file.write("made of " + name)
        os.rename(os.path.join(out, name + ".tmp"), os.path.join(out, name))
    return mini_batch
"""
)


def write(job: StorageJob, script: str, *, files: int = 4, outputs: str = "", **options: Any) -> None:
    """A job over files of this machine, which come in their order."""
    (job.folder / "data").mkdir()
    for number in range(files):
        (job.folder / "data" / f"{number:02d}").write_text("x")
    job.write(
        script,
        "{type: uri_folder, path: ./data}",
        outputs=outputs or f"made: {{path: {job.url}/out}}",
        arguments="--out ${{outputs.made}}",
        **options,
    )


def made(job: StorageJob, prefix: str = "out") -> dict[str, bytes]:
    """What is in the store below a prefix."""
    base = f"{job.prefix}/{prefix}/"
    return {key.removeprefix(base): job.server.get(key) for key in job.server.keys(base)}


def test_files_of_each_mini_batch(job: StorageJob) -> None:
    write(job, WRITE)
    job.run_well("--slots", "2")
    assert made(job) == {f"{number:02d}": b"made of %02d" % number for number in range(4)}
    assert not list((job.state / "agent" / "steps").glob("*/outputs/*"))


ALL_KINDS = (
    WITH_OUT
    + """
def run(mini_batch):
    (name,) = map(os.path.basename, mini_batch)
    folder = os.path.join(out, name, "tief er", "ü 😀%20")
    os.makedirs(folder)
    open(os.path.join(out, name, "empty"), "w").close()
    with open(os.path.join(folder, "é=1.txt"), "wb") as file:
        file.write(b"deep in " + name.encode())
    with open(os.path.join(out, name, "large"), "wb") as file:
        for number in range(50):
            file.write(bytes([number]) * (1 << 20))
    return [name]
"""
)


def test_names_folders_and_sizes_of_all_kinds(job: StorageJob) -> None:
    write(job, ALL_KINDS, files=2)
    job.run_well("--slots", "2")
    large = b"".join(bytes([number]) * (1 << 20) for number in range(50))
    want = {}
    for name in ("00", "01"):
        want[f"{name}/empty"] = b""
        want[f"{name}/tief er/ü 😀%20/é=1.txt"] = b"deep in " + name.encode()
        want[f"{name}/large"] = large
    assert made(job) == want


def test_nothing_is_told_as_done_before_its_files_are_there(job: StorageJob, proxy: Proxy) -> None:
    """What a mini-batch has written is in the store when it counts, also when all dies right then."""
    gate = job.hold(proxy, "PUT", "out/02")
    write(job, WRITE)
    process = job.start("--slots", "1", "--format", "json")
    wait_until(gate.held.is_set, "a save that waits")
    wait_until(lambda: "02" not in made(job) and len(made(job)) == 2, "two saves that are done")
    agent = json.loads((job.state / "embedded.json").read_text())["agent_pid"]
    os.kill(agent, signal.SIGKILL)
    gate.open()
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    assert sorted(made(job)) == ["00", "01", "02", "03"]


CHANGES = (
    WITH_OUT
    + """\
    for name in ("from init", "changed later"):
        with open(os.path.join(out, name), "w") as file:
            file.write("init")

def run(mini_batch):
    (name,) = map(os.path.basename, mini_batch)
    with open(os.path.join(out, "all"), "a") as file:
        file.write(name + ";")
    if name == "00":
        with open(os.path.join(out, "half"), "w") as file:
            file.write("hal")
        raise ValueError("in the middle")
    if name == "01":
        os.rename(os.path.join(out, "changed later"), os.path.join(out, "renamed"))
    if name == "02":
        os.unlink(os.path.join(out, "from init"))
        with open(os.path.join(out, "renamed"), "w") as file:
            file.write("INIT")
    return [open(os.path.join(out, "all")).read()]

def shutdown():
    with open(os.path.join(out, "from shutdown"), "w") as file:
        file.write("end")
"""
)


def test_what_is_changed_later_and_what_fails(job: StorageJob) -> None:
    """A script reads what it has written; what a failed run() has left is not brought; what was brought stays."""
    write(job, CHANGES, files=3, settings="retry_settings: {max_retries: 0}")
    assert job.run_well("--slots", "1", "--tolerate") == b"00;01;\n00;01;02;\n"
    assert made(job) == {
        "all": b"00;01;02;",
        "from init": b"init",
        "renamed": b"INIT",
        "from shutdown": b"end",
    }


OUTPUT_DIR = """\
import os
from azureml_user.parallel_run import EntryScript

def run(mini_batch):
    assert EntryScript().output_dir == os.environ["AZUREML_BI_OUTPUT_PATH"]
    for path in mini_batch:
        with open(os.path.join(EntryScript().output_dir, os.path.basename(path)), "w") as file:
            file.write("made of " + os.path.basename(path))
    return mini_batch
"""


def test_a_step_that_gathers_no_rows(job: StorageJob) -> None:
    """Its one output is the script's `output_dir`."""
    write(job, OUTPUT_DIR)
    text = (job.folder / "job.yml").read_text()
    text = text.replace("      rows: {type: uri_file, path: ./rows.txt}\n", "")
    text = text.replace("      append_row_to: ${{outputs.rows}}\n", "").replace("--out ${{outputs.made}}", "--keep 1")
    (job.folder / "job.yml").write_text(text)
    code, said = job.run()
    assert code == 0 and f"Output: {job.url}/out\n" in said, said
    assert made(job) == {f"{number:02d}": b"made of %02d" % number for number in range(4)}


def test_rows_and_files_in_one_place(job: StorageJob) -> None:
    script = WRITE.replace('"--out"', '"--rows"').replace("[0].out", "[0].rows")
    write(job, script, files=2, rows=f"{{path: {job.url}/out}}", outputs="other: {path: ./other}")
    text = (job.folder / "job.yml").read_text().replace("--out ${{outputs.made}}", "--rows ${{outputs.rows}}")
    (job.folder / "job.yml").write_text(text.replace("    return mini_batch", ""))
    code, said = job.run()
    assert code == 0, said
    assert sorted(made(job)) == ["00", "01", "parallel_run_step.txt"]


def test_one_file(job: StorageJob) -> None:
    script = (
        WRITE.replace("assert os.path.isdir(out), out", "pass")
        .replace("os.path.join(out, name))", "out)")
        .replace('os.path.join(out, name + ".tmp")', 'out + ".tmp"')
    )
    write(job, script, files=1, outputs=f"made: {{type: uri_file, path: {job.url}/out/one.txt}}")
    job.run_well()
    assert made(job) == {"one.txt": b"made of 00"}


def test_another_step_reads_it(job: StorageJob) -> None:
    write(job, WRITE, files=3)
    text = (job.folder / "job.yml").read_text()
    again = text[text.index("  score:") :].replace("  score:", "  again:").replace("rows.txt", "again.txt")
    again = again.replace(f"{job.url}/out", f"{job.url}/again")
    again = again.replace(
        "{type: uri_folder, path: ./data}", "{type: uri_folder, path: '${{parent.jobs.score.outputs.made}}'}"
    )
    (job.folder / "job.yml").write_text(text + again)
    job.run_well()
    assert sorted(made(job, "again")) == ["00", "01", "02"]


BY_COMMAND = """\
  prepare:
    type: command
    command: test ! -e ${{{{outputs.made}}}} && {command}
    outputs:
      made: {{type: uri_folder, path: {url}/prepared, make_folder: false}}
"""


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("printf one > ${{outputs.made}}", ["prepared"]),
        ("mkdir ${{outputs.made}} && printf one > ${{outputs.made}}/file", ["prepared/file"]),
    ],
)
def test_a_command_makes_it_as_a_file_or_a_folder(job: StorageJob, command: str, keys: list[str]) -> None:
    write(job, WRITE, files=1)
    text = (
        (job.folder / "job.yml")
        .read_text()
        .replace(
            "{type: uri_folder, path: ./data}", "{type: uri_folder, path: '${{parent.jobs.prepare.outputs.made}}'}"
        )
    )
    (job.folder / "job.yml").write_text(text + BY_COMMAND.format(command=command, url=job.url))
    job.run_well()
    assert job.server.keys(f"{job.prefix}/prepared") == [f"{job.prefix}/{key}" for key in keys]
    assert list(made(job)) == [keys[0].rpartition("/")[2]]


LEAVE = (
    WITH_OUT
    + """
import socket

def run(mini_batch):
    (name,) = map(os.path.basename, mini_batch)
    if name == "00":
        {leave}
    else:
        open(os.path.join(out, name), "w").close()
    return [name]
"""
)


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        ("os.symlink('/proc/self/environ', os.path.join(out, 'x'))", "a link in its output, 'x'"),
        ("os.symlink('/proc/self', os.path.join(out, 'x'))", "a link in its output, 'x'"),
        ("os.mkfifo(os.path.join(out, 'x'))", "not a file, 'x'"),
        (r"open(os.path.join(os.fsencode(out), b'a\xff'), 'w').close()", r"a\xff"),
        (r"open(os.path.join(out, 'a\nb'), 'w').close()", r"'a\nb'"),
    ],
    ids=["link", "link to a folder", "pipe", "no UTF-8", "control character"],
)
def test_what_cannot_be_in_a_store_fails_its_mini_batch(job: StorageJob, leave: str, said: str) -> None:
    write(job, LEAVE.format(leave=leave), files=3, settings="retry_settings: {max_retries: 0}")
    code, text = job.run("--strict", "--slots", "1")
    assert code == 3 and said in text and "output_failed" in text, text
    assert made(job) == {"01": b"", "02": b""}
    assert job.rows.read_bytes() == b"01\n02\n"


AT_THE_END = (
    WITH_OUT
    + """
from azureml_user.parallel_run import EntryScript

def run(mini_batch):
    return mini_batch

def shutdown():
    with open(os.path.join(out, "end of " + EntryScript().agent_name), "w") as file:
        file.write("end")
"""
)


def test_a_step_is_done_when_what_shutdown_wrote_is_there(job: StorageJob, proxy: Proxy) -> None:
    gate = job.hold(proxy, "PUT")
    write(job, AT_THE_END)
    process = job.start("--slots", "1")
    wait_until(gate.held.is_set, "a save at the end")
    with windrow.Client(json.loads((job.state / "embedded.json").read_text())["address"]) as client:
        (seen,) = client.list_jobs()
        assert (seen.items.done, seen.state) == (4, JobState.RUNNING)
        wait_until(lambda: "Nodes end their workers" in next(client.list_jobs()).steps[0].message, "why it waits")
        assert made(job) == {}
        gate.open()
        *_, last = client.progress(seen.job_id)
        assert last.state is JobState.COMPLETED and made(job) == {"end of process000": b"end"}
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text


def test_what_shutdown_wrote_and_is_refused_fails_the_step(job: StorageJob, proxy: Proxy) -> None:
    def fault(exchange: Exchange) -> None:
        if exchange.command == "PUT":
            exchange.answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    proxy.fault = fault
    job.endpoint = proxy.url
    write(job, AT_THE_END)
    code, text = job.run("--slots", "1")
    assert code == 1 and "AccessDenied" in text and "process000" in text, text


@pytest.mark.parametrize("victim", ["master_pid", "agent_pid"])
def test_one_that_dies_while_workers_end(job: StorageJob, proxy: Proxy, victim: str) -> None:
    """A master hears of it again; what an agent had not brought yet is named."""
    gate = job.hold(proxy, "PUT")
    write(job, AT_THE_END)
    process = job.start("--slots", "1", "--format", "json")
    wait_until(gate.held.is_set, "a save at the end")
    os.kill(json.loads((job.state / "embedded.json").read_text())[victim], signal.SIGKILL)
    proxy.fault = lambda exchange: None
    gate.open()
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    if victim == "master_pid":
        assert made(job) == {"end of process000": b"end"}
    else:
        assert "was lost while it ended its workers" in text


def test_with_mode_direct_the_script_gets_the_address(job: StorageJob) -> None:
    script = WRITE.replace("assert os.path.isdir(out), out", "assert out.startswith('s3://'), out")
    script = script[: script.index("def run")] + "def run(mini_batch):\n    return [out] * len(mini_batch)\n"
    write(job, script, files=1, outputs=f"made: {{path: {job.url}/out, mode: direct}}")
    assert job.run_well().decode() == f"{job.url}/out\n"
    assert not job.fetch_processes()
