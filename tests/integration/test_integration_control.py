"""Control nodes over real processes: conditions, loops, kills in the middle of them, retries and reuse."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, check_words, wait_until
from windrow_command import windrow

Make = Callable[..., EmbeddedRun]

COUNT = """
type: pipeline
jobs:
  check:
    type: command
    command: echo "True" > ${{outputs.go}}
    outputs: {go: {type: boolean, is_control: true}}
  decide:
    type: if_else
    condition: ${{parent.jobs.check.outputs.go}}
    true_block: ${{parent.jobs.big}}
    false_block: ${{parent.jobs.small}}
  big: {type: command, command: echo big >> @/ran}
  small:
    type: command
    command: echo small >> @/ran
    outputs: {out: }
  reads_small:
    type: command
    command: echo reads_small >> @/ran
    inputs: {out: "${{parent.jobs.small.outputs.out}}"}
  body:
    type: command
    command: >-
      n=$((${{inputs.n}} + 1)); echo "body $n" >> @/ran; until [ -e @/go$n ]; do sleep 0.01; done;
      cat ${{inputs.before}}/*.txt > ${{outputs.text}}/all.txt; echo "$n" >> ${{outputs.text}}/all.txt;
      echo $n > ${{outputs.n}}; echo w$n > ${{outputs.word}};
      [ $n -lt 3 ] && echo true > ${{outputs.again}} || echo false > ${{outputs.again}}
    inputs: {n: 0, before: {type: uri_folder, path: ./data}}
    outputs:
      text: "${{parent.outputs.text}}"
      n: {type: integer}
      word: {type: string}                # which no iteration reads
      again: {type: boolean, is_control: true}
  repeat:
    type: do_while
    body: ${{parent.jobs.body}}
    condition: again
    mapping: {n: n, text: [before]}
    limits: {max_iteration_count: 5}
  last:
    type: command
    command: echo "last ${{inputs.n}} ${{inputs.word}} $(cat ${{inputs.text}}/all.txt | tr '\\n' ' ')" >> @/ran
    inputs:
      n: "${{parent.jobs.body.outputs.n}}"
      word: "${{parent.jobs.body.outputs.word}}"
      text: "${{parent.jobs.body.outputs.text}}"
outputs: {text: }
"""


def run_of(make: Make, text: str) -> EmbeddedRun:
    """A run of this job file, in which @ is the folder of the job."""
    run = make("", files=0)
    (run.folder / "data" / "first.txt").write_text("0\n")
    (run.folder / "job.yml").write_text(textwrap.dedent(text).replace("@", str(run.folder)))
    return run


def ran(run: EmbeddedRun) -> list[str]:
    """What the steps say that they have done, one line each."""
    file = run.folder / "ran"
    return file.read_text().splitlines() if file.exists() else []


def shown(run: EmbeddedRun) -> dict[str, dict[str, str]]:
    """The steps of the last job, as `windrow job show` has them."""
    told = windrow("job", "show", "last", "--format", "json", cwd=run.folder)
    return {step["name"]: step for step in json.loads(told.stdout)["steps"]}


@pytest.mark.parametrize("kills", [False, True], ids=["", "with kills of all processes"])
def test_one_block_runs_and_a_loop_ends_by_its_condition(make: Make, kills: bool) -> None:
    run = run_of(make, COUNT)
    run.start()
    for number in range(1, 4):
        wait_until(lambda: f"body {number}" in ran(run), f"iteration {number}")  # noqa: B023
        if kills:
            # The next agent ends the command that is left.
            run.kill("cli", "master", "agent")
            run.finish()
            run.start()
            wait_until(lambda: ran(run).count(f"body {number}") > 1, f"iteration {number} again")  # noqa: B023
        (run.folder / f"go{number}").touch()
    code, text = run.finish()
    assert code == 0, text
    assert sorted(set(ran(run))) == ["big", "body 1", "body 2", "body 3", "last 3 w3 0 1 2 3 "]
    assert kills or len(ran(run)) == 5
    steps = shown(run)
    skipped = {name: step["message"] for name, step in steps.items() if step["state"] == "skipped"}
    assert skipped == {
        "small": "The condition of 'decide' is true: output 'go' of step 'check'.",
        "reads_small": "Step 'small', whose output it reads, was skipped.",
        "body_4": "Loop 'repeat' has ended after 3 iterations: output 'again' of step 'body_3' is false.",
        "body_5": "Loop 'repeat' has ended after 3 iterations: output 'again' of step 'body_3' is false.",
    }
    # The output of the pipeline is that of the last iteration that ran.
    (place,) = [line.removeprefix("Output: ") for line in text.splitlines() if line.startswith("Output: ")]
    assert Path(place, "all.txt").read_text() == "0\n1\n2\n3\n"
    explained = windrow("job", "explain", "last", cwd=run.folder).stdout
    assert "small: SKIPPED" in explained and skipped["small"] in explained
    log = next(run.state.glob("jobs/*/logs/job_result.txt")).read_text()
    assert f"  small: Skipped\n    {skipped['small']}\n" in log
    assert "steps skipped" in windrow("job", "report", "last", "--to", "-", cwd=run.folder).stdout
    refused = windrow("job", "retry", "last", cwd=run.folder)
    assert "nothing is left to run" in refused.stderr


def test_a_condition_that_is_no_boolean_fails_its_step_and_a_retry_goes_on(make: Make) -> None:
    run = run_of(
        make,
        """
        type: pipeline
        jobs:
          check:
            type: command
            command: cat @/answer > ${{outputs.go}}
            outputs: {go: {is_control: true}}
          decide: {type: if_else, condition: "${{parent.jobs.check.outputs.go}}", false_block: "${{parent.jobs.no}}"}
          no: {type: command, command: echo no >> @/ran}
        """,
    )
    (run.folder / "answer").write_text("maybe\n")
    code, text = run.run()
    assert code == 1
    check_words(text, ["Output 'go' of step 'check'", r"'maybe\n', which is not true or false", "into that file."])
    (run.folder / "answer").write_text("0")
    again = windrow("job", "retry", "last", "--stream", cwd=run.folder)
    assert again.returncode == 0, again.stderr
    assert ran(run) == ["no"] and shown(run)["no"]["state"] == "completed"


def test_a_pipeline_is_repeated_as_a_whole_and_reused_with_its_conditions(make: Make) -> None:
    run = run_of(
        make,
        """
        type: pipeline
        settings: {force_rerun: false}
        jobs:
          grow:
            type: pipeline
            component: ./grow.yml
            inputs: {n: 1}
          repeat:
            type: do_while
            body: ${{parent.jobs.grow}}
            condition: ${{parent.jobs.grow.outputs.more}}
            mapping: {"${{parent.jobs.grow.outputs.n}}": "${{parent.jobs.grow.inputs.n}}"}
            limits: {max_iteration_count: 4}
          last:
            type: command
            command: echo "last ${{inputs.n}}" | tee -a @/ran > ${{outputs.out}}/n.txt
            inputs: {n: "${{parent.jobs.grow.outputs.n}}"}
            outputs: {out: }
        """,
    )
    (run.folder / "grow.yml").write_text(
        textwrap.dedent("""
        type: pipeline
        inputs: {n: {type: integer}}
        outputs: {n: {type: integer}, more: {type: boolean, is_control: true}}
        jobs:
          double:
            type: command
            command: |
              n=$((${{inputs.n}} * 2)); echo double $n >> @/ran; echo $n > ${{outputs.n}}
              [ $n -gt 5 ] && echo 1 > ${{outputs.big}} || echo 0 > ${{outputs.big}}
            inputs: {n: "${{parent.inputs.n}}"}
            outputs: {n: "${{parent.outputs.n}}", big: {type: boolean}}
          decide:
            type: if_else
            condition: ${{parent.jobs.double.outputs.big}}
            true_block: ["${{parent.jobs.large}}"]
            false_block: ["${{parent.jobs.little}}"]
          large: {type: command, command: echo large >> @/ran}
          little: {type: command, command: echo little >> @/ran}
          negate:
            type: command
            command: |
              [ "${{inputs.big}}" = True ] && echo False > ${{outputs.more}} || echo True > ${{outputs.more}}
            inputs: {big: "${{parent.jobs.double.outputs.big}}"}
            outputs: {more: "${{parent.outputs.more}}"}
        """).replace("@", str(run.folder))
    )
    code, text = run.run()
    assert code == 0, text
    # The steps of an iteration run side by side; each iteration begins when all of the one before has ended.
    assert [line for line in ran(run) if line[0] == "d"] == ["double 2", "double 4", "double 8"]
    assert [line for line in ran(run) if line[0] == "l"] == ["little", "little", "large", "last 8"]
    steps = shown(run)
    states = {name: step["state"] for name, step in steps.items()}
    assert states["grow_3__large"] == states["grow_3__negate"] == "completed"
    assert states["grow_3__little"] == states["grow_4__double"] == states["grow_4__negate"] == "skipped"
    code, text = run.run()
    assert code == 0, text
    assert "last 8" in ran(run) and ran(run).count("double 8") == 1
    # What has outputs is reused; commands without outputs run again.
    assert {name for name, step in shown(run).items() if step["reused_from"]} == {
        "grow__double", "grow__negate", "grow_2__double", "grow_2__negate", "grow_3__double", "grow_3__negate", "last",
    }  # fmt: skip
    assert {name: step["state"] for name, step in shown(run).items()} == states


UNTRUSTED = """
type: pipeline
jobs:
  writes:
    type: command
    command: cp @/value ${{outputs.word}}
    outputs: {word: {type: string}}
  reads:
    type: command
    command: printf 'got %s\\n' "$WINDROW_INPUT_word" >> @/ran
    inputs: {word: "${{parent.jobs.writes.outputs.word}}"}
"""


def test_a_value_that_a_shell_must_not_read_is_in_a_variable(make: Make) -> None:
    run = run_of(make, UNTRUSTED)
    value = f"\"; touch {run.folder}/run; $(touch {run.folder}/run) `touch {run.folder}/run` ' \\"
    (run.folder / "value").write_text(value)
    run.start()
    code, text = run.finish()
    assert code == 0, text
    assert ran(run) == [f"got {value}"]
    assert not (run.folder / "run").exists()
