"""What a group says of Slurm, and what Slurm would be asked for it; no Slurm is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from windrow.fleet.provider import AgentCommand, Request, Shape
from windrow.fleet.providers.slurm import KIND
from windrow.fleet.providers.slurm.settings import SlurmSettings
from windrow.fleet.providers.slurm.states import reason_of, state_of
from windrow.spec.reading.mapping_file import read_mapping_file

REQUEST = Request(
    "site-cpu-0a1b2c-x1",
    Shape(16, 64 * 1000**3, 2),
    4 * 3600.0,
    AgentCommand(("windrow", "agent", "--master", "m:1"), {"TZ": "UTC"}, "/tmp/windrow-site-cpu-0a1b2c-x1"),
)


def _read(tmp_path: Path, text: str) -> tuple[SlurmSettings, list[str]]:
    """The settings of a file, and what is wrong with it."""
    file = tmp_path / "slurm.yml"
    file.write_text(text)
    mapping, context = read_mapping_file(file, "fleet", "it must be a mapping.")
    settings = KIND.read(mapping, "slurm", context)
    problems = [*context.problems.errors, *context.problems.warnings]
    return settings, [f"{problem.key} {problem.message}" for problem in problems]


def test_all_keys_are_read(tmp_path: Path) -> None:
    settings, wrong = _read(
        tmp_path,
        "partition: batch\naccount: science\nqos: high\nconstraint: a|b\nextra_args: [--exclude=n7, -x, --comment=p]\n"
        "setup: [module load python, source activate]\nlog_folder: logs\n",
    )
    assert wrong == []
    assert settings == SlurmSettings(
        "batch",
        "science",
        "high",
        "a|b",
        ("--exclude=n7", "-x", "--comment=p"),
        ("module load python", "source activate"),
        str(tmp_path / "logs"),
    )


@pytest.mark.parametrize(
    "argument",
    ["--job-name=x", "-Jx", "--array=1-3", "-a1-3", "--ar=1-3", "--clusters=other", "-Mother", "--wait", "--wrap=true"],
)
def test_options_by_which_a_fleet_would_lose_its_jobs_are_refused(tmp_path: Path, argument: str) -> None:
    _, wrong = _read(tmp_path, f'extra_args: ["{argument}"]\n')
    (problem,) = wrong
    assert problem.startswith(f'slurm.extra_args has "{argument}": the fleet sets or needs this itself.')


def test_a_value_apart_from_its_option_is_refused_since_sbatch_would_take_it_for_a_script(tmp_path: Path) -> None:
    _, wrong = _read(tmp_path, "extra_args: [--exclude, node7]\n")
    (problem,) = wrong
    assert problem.startswith('slurm.extra_args has "node7": write an option and its value as one text')


def test_an_unknown_key_is_told(tmp_path: Path) -> None:
    _, wrong = _read(tmp_path, "partiton: batch\n")
    (problem,) = wrong
    assert problem.startswith("slurm.partiton is unknown here") and "partition" in problem


def test_what_is_shown_is_what_slurm_would_be_asked(tmp_path: Path) -> None:
    settings = SlurmSettings(
        "batch", extra_args=("--exclude=n7",), setup=("module load python",), log_folder=str(tmp_path)
    )
    assert KIND.show(settings, REQUEST) == (
        "sbatch --parsable --job-name=site-cpu-0a1b2c-x1 --nodes=1 --ntasks=1 --cpus-per-task=16 --mem=61036M "
        "--gres=gpu:2 --time=240 --signal=B:USR1@90 --no-requeue --export=NIL "
        f"--chdir={tmp_path} --output={tmp_path}/site-cpu-0a1b2c-x1.log --open-mode=append --partition=batch "
        "--exclude=n7 <<'END'\n"
        "#!/bin/bash -l\n"
        "# The agent of one allocation of a fleet of Windrow.\n"
        "module load python\n"
        "export TZ=UTC\n"
        "trap 'kill \"$agent\"' USR1  # its time is nearly over\n"
        "trap : TERM                # whoever ends the job tells the agent as well\n"
        "windrow agent --master m:1 &\n"
        "agent=$!\n"
        'while wait "$agent"; code=$?; kill -0 "$agent" 2>/dev/null; do :; done\n'
        'wait "$agent"; code=$?\n'
        "rm -rf -- /tmp/windrow-site-cpu-0a1b2c-x1\n"
        'exit "$code"\n'
        "END\n"
    )


@pytest.mark.parametrize(
    ("word", "reason", "state", "told"),
    [
        ("PENDING", "Priority", "queued", "Priority"),
        ("PENDING", "None", "queued", ""),
        ("CONFIGURING", "None", "queued", "CONFIGURING"),
        ("RUNNING", "None", "started", ""),
        ("SUSPENDED", "None", "started", "SUSPENDED"),
        ("SOMETHING_NEW", "None", "started", "SOMETHING_NEW"),
        ("COMPLETED", "None", "completed", ""),
        ("CANCELLED by 1000", "", "cancelled", "CANCELLED by 1000"),
        ("DEADLINE", "None", "expired", "DEADLINE"),
        ("BOOT_FAIL", "None", "failed", "BOOT_FAIL"),
        ("OUT_OF_MEMORY", "OutOfMemory", "failed", "OUT_OF_MEMORY (OutOfMemory)"),
    ],
)
def test_states_that_cannot_be_had_here_are_read_as_slurm_writes_them(
    word: str, reason: str, state: str, told: str
) -> None:
    assert (state_of(word).value, reason_of(word, reason)) == (state, told)
