"""Whole pipelines: command steps beside parallel ones, over real processes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_commands import ServedCluster
from embedded_run import EmbeddedRun, check_words, wait_until

Make = Callable[..., EmbeddedRun]

ECHO = "import os\ndef run(mini_batch):\n    return [open(path).read().strip() for path in mini_batch]\n"


def pipeline(make: Make, jobs: str, more: str = "", script: str = ECHO) -> EmbeddedRun:
    """A run whose job file has these steps."""
    run = make(script)
    text = f"type: pipeline\n{textwrap.dedent(more)}jobs:\n{textwrap.indent(textwrap.dedent(jobs), '  ')}"
    (run.folder / "job.yml").write_text(text)
    return run


def log_of(run: EmbeddedRun, step: str, kind: str = "stdout") -> str:
    """What a step's processes wrote."""
    (logs,) = run.state.glob(f"jobs/*/logs/{step}/user/{kind}")
    return "".join(file.read_text() for file in sorted(logs.rglob("*.txt")))


@pytest.mark.timeout(1200)
def test_a_job_of_six_hundred_steps_loses_no_node(make: Make) -> None:
    run = pipeline(make, "".join(f"c{number}: {{type: command, command: 'true'}}\n" for number in range(600)))
    run.start()
    assert run.process is not None
    text, _ = run.process.communicate(timeout=1100)
    assert run.process.returncode == 0, text[-2000:]
    assert "600 commands" in text and "lost" not in text


def test_the_output_artifacts_keeps_what_a_command_writes_to_outputs(make: Make) -> None:
    run = pipeline(
        make,
        """
        write:
          type: command
          code: ./code
          command: echo world > ./outputs/world.txt
          outputs: {artifacts: }
        read:
          type: command
          command: cat ${{inputs.before}}/outputs/*.txt; echo lost > outputs/lost.txt
          inputs: {before: "${{parent.jobs.write.outputs.artifacts}}"}
        """,
    )
    # Files that come with the code stay beside those that are written.
    shipped = run.folder / "code" / "outputs"
    shipped.mkdir()
    (shipped / "hello.txt").write_text("hello\n")
    run.run()
    assert log_of(run, "read") == "hello\nworld\n"
    assert "wrote to ./outputs, which is not kept: outputs/lost.txt. Give the step" in log_of(run, "read", "stderr")
    assert not list(run.state.glob("jobs/*/logs/write/user/stderr"))


def test_a_step_adds_to_the_folder_that_an_earlier_step_has_written(make: Make) -> None:
    run = pipeline(
        make,
        """
        write:
          type: command
          command: echo a > ${{outputs.files}}/a.txt
          outputs: {files: {path: ./out}}
        index:
          type: command
          command: ls ${{inputs.files}} > ${{outputs.indexed}}/index
          inputs: {files: "${{parent.jobs.write.outputs.files}}"}
          outputs: {indexed: {path: ./out}}
        read:
          type: command
          command: cat ${{inputs.files}}/*
          inputs: {files: "${{parent.jobs.index.outputs.indexed}}"}
        """,
    )
    for _ in range(2):
        code, text = run.run()
        assert code == 0, text
    assert (run.folder / "out" / "index").read_text().splitlines() == ["a.txt", "index"]
    assert {file.name for file in (run.folder / "out").iterdir()} == {"a.txt", "index"}
    (read,) = {file.read_text() for file in run.state.glob("jobs/*/logs/read/user/stdout/**/*.txt")}
    assert read == "a\na.txt\nindex\n"


def test_a_command_that_removes_the_folder_of_its_output_is_told(make: Make) -> None:
    run = pipeline(
        make,
        """
        write:
          type: command
          command: rm -rf ${{outputs.files}}; echo a > ${{outputs.files}}/a.txt
          outputs: {files: }
        """,
    )
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["removed the folder of its output 'files'", "rm -rf ${{outputs.files}}/*"])


def test_commands_and_parallel_steps_hand_their_outputs_on(make: Make) -> None:
    run = pipeline(
        make,
        """
        prepare:
          type: command
          command: |
            mkdir ${{outputs.made}}/below
            for i in $(seq ${{inputs.count}}); do echo "item $i" > ${{outputs.made}}/below/$i; done
          inputs: {count: 3}
          outputs: {made: {type: uri_folder}}
        score:
          type: parallel
          inputs: {made: "${{parent.jobs.prepare.outputs.made}}"}
          outputs: {rows: {type: uri_file, path: ./rows.txt}}
          input_data: ${{inputs.made}}
          mini_batch_size: 1
          task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
        count:
          type: command
          command: wc -l < ${{inputs.rows}} > ${{outputs.total}} && ls
          code: ./code
          inputs: {rows: "${{parent.jobs.score.outputs.rows}}"}
          outputs: {total: {type: uri_file, path: ./total.txt}}
        """,
    )
    code, text = run.run()
    assert code == 0, text
    assert (run.folder / "rows.txt").read_text() == "item 1\nitem 2\nitem 3\n"
    assert (run.folder / "total.txt").read_text().strip() == "3"
    assert log_of(run, "count") == "entry.py\noutputs\n"
    check_words(text, ["Completed: 3 items in 3 mini-batches, 2 commands, 3 rows"])


def test_a_command_that_fails_ends_the_job_with_its_own_words(make: Make) -> None:
    run = pipeline(
        make,
        """
        broken: {type: command, command: "echo some words; python -c 'import no_such_module'"}
        later: {type: command, command: "touch ${{outputs.x}}/done", outputs: {x: {path: ./x}}}
        waits: {type: command, command: "ls ${{inputs.x}}", inputs: {x: "${{parent.jobs.later.outputs.x}}"}}
        """,
    )
    code, text = run.run("--slots", "1")
    assert code == 1, text
    what = "The command ended with exit code 1: ModuleNotFoundError: No module named 'no_such_module'"
    assert text.splitlines()[-1] == f"Failed: Step 'broken' failed: {what}"
    check_words(text, ["Traceback (most recent call last)", "windrow job logs"])
    assert "failed_items" not in text and "mini-batch" not in text
    assert log_of(run, "broken") == "some words\n"
    assert [counters["retries"] for counters in run.counters()] == [0, 0, 0]


def test_a_job_goes_on_beside_a_failed_step_where_it_says_so(make: Make) -> None:
    run = pipeline(
        make,
        """
        broken: {type: command, command: "exit 3", outputs: {x: {path: ./x}}}
        reads: {type: command, command: "touch reads", inputs: {x: "${{parent.jobs.broken.outputs.x}}"}}
        apart: {type: command, command: "sleep 0.3; echo here > ${{outputs.y}}/here", outputs: {y: {path: ./y}}}
        """,
        "settings: {continue_on_step_failure: true}\n",
    )
    code, text = run.run()
    assert code == 1, text
    assert (run.folder / "y" / "here").read_text() == "here\n"
    check_words(text, ["Failed: Step 'broken' failed: The command ended with exit code 3"])


def test_python_variables_and_folder_of_a_command_are_those_of_a_script(make: Make) -> None:
    values = "sys.executable, os.environ['GREETING'], bool(os.environ['AZUREML_RUN_ID'])"
    show = f"import os, sys; print({values}, sep='\\n')"
    run = pipeline(
        make,
        f"""
        look:
          type: command
          command: python -c "{show}"
          environment_variables: {{GREETING: hello}}
        """,
    )
    code, text = run.run("--python", sys.executable)
    assert code == 0, text
    python, *others = log_of(run, "look").splitlines()
    assert Path(python).parent == Path(sys.executable).parent
    assert others == ["hello", "True"]


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(make: Make) -> None:
    run = pipeline(
        make,
        """
        slow:
          type: command
          command: sleep 600 & echo $! > ${{outputs.pid}}/pid; sleep 600
          limits: {timeout: 1}
          outputs: {pid: {path: ./pid}}
        """,
    )
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["longer than 1 s"])
    child = int((run.folder / "pid" / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "what the command started is gone")


WAITS = """
wait:
  type: command
  command: |
    echo begun >> ${{outputs.log}}/log
    while [ ! -e ${{outputs.log}}/gate ]; do sleep 0.05; done
    echo ended >> ${{outputs.log}}/log
  outputs: {log: {path: ./log}}
"""


def begun(run: EmbeddedRun) -> int:
    log = run.folder / "log" / "log"
    return log.read_text().count("begun") if log.exists() else 0


def test_a_command_goes_on_while_the_master_is_killed_and_runs_once(make: Make) -> None:
    run = pipeline(make, WAITS)
    run.start()
    wait_until(lambda: begun(run) == 1, "the command runs")
    (master,) = run.pids("master")
    run.kill("master")
    wait_until(lambda: run.pids("master") not in ([], [master]), "another master")
    (run.folder / "log" / "gate").touch()
    code, text = run.finish()
    assert code == 0, text
    assert (run.folder / "log" / "log").read_text() == "begun\nended\n"


def test_a_command_whose_agent_is_killed_is_run_again(make: Make) -> None:
    run = pipeline(make, WAITS)
    run.start()
    wait_until(lambda: begun(run) == 1, "the command runs")
    run.kill("agent")
    wait_until(lambda: begun(run) == 2, "it runs again")
    (run.folder / "log" / "gate").touch()
    code, text = run.finish()
    assert code == 0, text
    assert (run.folder / "log" / "log").read_text() == "begun\nbegun\nended\n"


def test_an_interrupted_pipeline_goes_on_behind_the_steps_that_are_done(make: Make) -> None:
    first = "first: {type: command, command: 'echo ran >> ${{outputs.o}}/log', outputs: {o: {path: ./first}}}\n"
    inputs = "  inputs: {o: '${{parent.jobs.first.outputs.o}}'}\n"
    run = pipeline(make, first + textwrap.dedent(WAITS).lstrip() + inputs)
    run.start()
    wait_until(lambda: begun(run) == 1, "the second command runs")
    run.kill_all()
    (run.folder / "log" / "gate").touch()
    code, text = run.run()
    assert code == 0, text
    check_words(text, ["Continuing run", "1 command done before"])
    assert (run.folder / "first" / "log").read_text() == "ran\n"


def test_steps_run_on_the_nodes_of_their_pools_and_wait_for_them(cluster: ServedCluster) -> None:
    cluster.start_agent("cpu1", "--pool", "cpu-cluster", "--pool", "other")
    (cluster.folder / "pools.yml").write_text(
        textwrap.dedent("""\
        type: pipeline
        settings: {default_compute: azureml:gpu-cluster}
        jobs:
          prepare: {type: command, command: "echo prepared", compute: azureml:cpu-cluster}
          train: {type: command, command: "hostname; echo trained"}
        """)
    )
    created = cluster.run("job", "create", "pools.yml", "--name", "pools")
    assert created.returncode == 0, created.stderr

    def explained() -> str:
        return " ".join(cluster.run("job", "explain", "pools").stdout.split())

    wait_until(lambda: "prepare: COMPLETED" in explained(), "what has a pool here is done")
    check_words(
        explained(),
        [
            "pools is running",
            "train: NO_NODE_IN_POOL",
            "No node of the pool 'gpu-cluster'",
            "Connected nodes are in the pools cpu-cluster, other",
            "windrow agent --pool gpu-cluster",
            "windrow node list",
        ],
    )
    assert "No node of the pool 'gpu-cluster'" in cluster.run("job", "show", "pools").stdout
    cluster.start_agent("gpu1", "--pool", "azureml:gpu-cluster")
    followed = cluster.run("job", "stream", "pools")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    listed = cluster.run("node", "list").stdout
    check_words(listed, ["POOL", "cpu-cluster,other", "gpu-cluster"])

    def logs() -> set[tuple[str, str]]:
        files = [file for file in cluster.state.rglob("*.stdout.txt") if file.stat().st_size]
        return {(file.parts[-5], file.parts[-2]) for file in files}

    # Nodes push what commands print once a second.
    wait_until(lambda: logs() == {("prepare", "cpu1"), ("train", "gpu1")}, "each step has run in its pool")
    refused = cluster.run("agent", "--folder", "x", "--pool", "no pool")
    assert refused.returncode == 2 and "--pool no pool" in refused.stderr
