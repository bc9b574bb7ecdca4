"""Control nodes: what a branch and a loop become, also in nested pipelines, and what is wrong in them."""

from __future__ import annotations

import pytest
from spec_workspace import Workspace
from windrow.spec import EffectiveStep, Iteration, JobFileError, LiteralInput, OutputInput, RunIf, StepOutput

GO = "outputs: {go: {type: boolean, is_control: true}}"
BRANCHES = f"""\
type: pipeline
inputs: {{flag: false, word: perhaps, images: {{type: uri_folder, path: ./images}}}}
jobs:
  check: {{type: command, command: echo, {GO}}}
  yes: {{type: command, command: echo}}
  no: {{type: command, command: echo, outputs: {{out: }}}}
  decide:
    type: if_else
    condition: ${{{{parent.jobs.check.outputs.go}}}}
    true_block: ${{{{parent.jobs.yes}}}}
    false_block: ["${{{{parent.jobs.no}}}}"]
"""
LOOP = """\
type: pipeline
outputs: {model: }
jobs:
  body:
    type: command
    command: echo ${{inputs.n}} $[[--before ${{inputs.before}}]]
    inputs: {n: 0, before: {type: uri_folder, optional: true}}
    outputs:
      model: "${{parent.outputs.model}}"
      n: {type: integer}
      more: {type: boolean, is_control: true}
  repeat:
    type: do_while
    body: ${{parent.jobs.body}}
    condition: ${{parent.jobs.body.outputs.more}}
    mapping:
      n: ${{parent.jobs.body.inputs.n}}
      ${{parent.jobs.body.outputs.model}}: [before]
    limits: {max_iteration_count: 3}
  after:
    type: command
    command: echo ${{inputs.n}} ${{inputs.as_file}} ${{inputs.model}}
    inputs:
      n: {type: integer, path: "${{parent.jobs.body.outputs.n}}"}
      as_file: {type: uri_file, path: "${{parent.jobs.body.outputs.n}}"}
      model: ${{parent.jobs.body.outputs.model}}
"""


def steps_of(workspace: Workspace, text: str, *sets: str) -> dict[str, EffectiveStep]:
    return {step.name: step for step in workspace.job(text, *sets).job.steps}


def errors_of(workspace: Workspace, text: str) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        workspace.job(text)
    assert all(problem.line for problem in caught.value.problems)
    return [f"{problem.key}: {problem.message}" for problem in caught.value.problems]


def test_steps_of_a_block_run_only_if_the_condition_is_as_they_want(workspace: Workspace) -> None:
    steps = steps_of(workspace, BRANCHES)
    assert steps["check"].outputs["go"] == StepOutput("uri_file", "rw_mount", value="boolean")
    assert steps["yes"].run_if == (RunIf("decide", True, "check", "go"),)
    assert steps["no"].run_if == (RunIf("decide", False, "check", "go"),)
    assert steps["yes"].depends_on == steps["no"].depends_on == ("check",)
    assert "decide" not in steps


@pytest.mark.parametrize(
    ("condition", "never"),
    [("true", "no"), ("false", "yes"), ("${{parent.inputs.flag}}", "yes")],
)
def test_a_condition_that_is_known_decides_when_the_file_is_read(
    workspace: Workspace, condition: str, never: str
) -> None:
    steps = steps_of(workspace, BRANCHES.replace("${{parent.jobs.check.outputs.go}}", condition))
    assert {name for name, step in steps.items() if step.run_if} == {never}
    assert steps[never].run_if == (RunIf("decide", never == "yes"),)
    assert steps_of(workspace, BRANCHES, f"jobs.decide.condition={condition}") == steps


def test_a_loop_is_its_body_once_for_each_iteration_that_there_may_be(workspace: Workspace) -> None:
    loaded = workspace.job(LOOP)
    steps = {step.name: step for step in loaded.job.steps}
    assert list(steps) == ["body", "body_2", "body_3", "after"]
    assert steps["body"].inputs == {"n": LiteralInput("0")}
    assert (steps["body"].command or "").split() == ["echo", "${{inputs.n}}"]
    assert steps["body_3"].inputs == {
        "n": OutputInput("body_2", "n", "integer", "ro_mount"),
        "before": OutputInput("body_2", "model", "uri_folder", "ro_mount"),
    }
    assert "--before" in (steps["body_3"].command or "")
    assert steps["body_3"].iterations == (Iteration("repeat", 3, "body_2", "body_2", "more"),)
    assert steps["body_3"].depends_on == ("body_2",) and not steps["body"].iterations
    assert steps["after"].inputs == {
        "n": OutputInput("body_3", "n", "integer", "ro_mount"),
        "as_file": OutputInput("body_3", "n", "uri_file", "ro_mount"),
        "model": OutputInput("body_3", "model", "uri_folder", "ro_mount"),
    }
    assert {name: (bound.step, bound.output) for name, bound in loaded.job.outputs.items()} == {
        "model": ("body_3", "model")
    }
    assert list(steps_of(workspace, LOOP, "jobs.repeat.limits.max_iteration_count=1")) == ["body", "after"]


def test_a_loop_without_condition_and_mapping_runs_one_iteration_after_the_other(workspace: Workspace) -> None:
    text = "type: pipeline\njobs:\n  a: {type: command, command: echo}\n  r: {type: do_while, body: '${{parent.jobs.a}}', mapping: {}, limits: {max_iteration_count: 3}}\n"  # noqa: E501
    steps = steps_of(workspace, text)
    assert [step.depends_on for step in steps.values()] == [(), ("a",), ("a_2",)]
    assert steps["a_3"].iterations == (Iteration("r", 3, "a_2"),)


def test_pipelines_are_repeated_and_chosen_as_a_whole(workspace: Workspace) -> None:
    workspace.write(
        "sub.yml",
        """\
        type: pipeline
        inputs: {n: {type: integer}, go: {type: boolean}}
        outputs: {n: {type: integer}, more: {type: boolean}}
        jobs:
          a: {type: command, command: "echo ${{inputs.n}}", inputs: {n: "${{parent.inputs.n}}"}, outputs: {n: "${{parent.outputs.n}}", more: {type: boolean}}}
          b: {type: command, command: echo, outputs: {more: "${{parent.outputs.more}}"}}
          inner: {type: do_while, body: "${{parent.jobs.a}}", mapping: {n: n}, condition: more, limits: {max_iteration_count: 2}}
          given: {type: if_else, condition: "${{parent.inputs.go}}", true_block: "${{parent.jobs.b}}"}
        """,  # noqa: E501
    )
    steps = steps_of(
        workspace,
        f"""\
        type: pipeline
        jobs:
          check: {{type: command, command: echo, {GO}}}
          sub:
            type: pipeline
            component: ./sub.yml
            inputs: {{n: 1, go: "${{{{parent.jobs.check.outputs.go}}}}"}}
          outer:
            type: do_while
            body: ${{{{parent.jobs.sub}}}}
            mapping: {{n: n}}
            condition: more
            limits: {{max_iteration_count: 2}}
          decide:
            type: if_else
            condition: ${{{{parent.jobs.check.outputs.go}}}}
            false_block: ${{{{parent.jobs.outer}}}}
        """,
    )
    assert list(steps) == ["check", "sub__a", "sub__a_2", "sub__b", "sub_2__a", "sub_2__a_2", "sub_2__b"]
    outside = RunIf("decide", False, "check", "go")
    assert all(outside in step.run_if for name, step in steps.items() if name != "check")
    assert steps["sub_2__b"].run_if == (outside, RunIf("sub_2__given", True, "check", "go"))
    assert steps["sub_2__a_2"].iterations == (
        Iteration("outer", 2, "sub__a_2", "sub__b", "more"),
        Iteration("sub_2__inner", 2, "sub_2__a", "sub_2__a", "more"),
    )
    assert steps["sub_2__a"].inputs == {"n": OutputInput("sub__a_2", "n", "integer", "ro_mount")}
    assert set(steps["sub_2__a"].depends_on) == {"check", "sub__a", "sub__a_2", "sub__b"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("${{parent.jobs.check.outputs.go}}", "${{parent.jobs.no.outputs.out}}", "declare it with type: boolean"),
        ("${{parent.jobs.check.outputs.go}}", "${{parent.inputs.images}}", "it is data"),
        ("${{parent.jobs.check.outputs.go}}", "${{parent.inputs.word}}", 'its value is "perhaps"'),
        ("${{parent.jobs.check.outputs.go}}", "maybe", "a condition is true, false, or a binding"),
        ("    condition: ${{parent.jobs.check.outputs.go}}\n", "", "jobs.decide.condition: is missing"),
        ("${{parent.jobs.yes}}", "${{parent.jobs.other}}", 'there is no step "other"'),
        ("${{parent.jobs.yes}}", "yes", "name steps of the pipeline"),
        ("${{parent.jobs.yes}}", "${{parent.jobs.no}}", "as true_block does"),
        ("${{parent.jobs.yes}}", "${{parent.jobs.check}}", "waits for itself"),
        ("type: if_else", "type: parallel_for", 'nodes of type "parallel_for" are not supported'),
    ],
)
def test_what_is_wrong_in_a_choice_is_said(workspace: Workspace, before: str, after: str, told: str) -> None:
    assert before in BRANCHES
    (error,) = errors_of(workspace, BRANCHES.replace(before, after))
    assert told in error


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("body: ${{parent.jobs.body}}", "body: body", 'jobs.repeat.body: is "body"; name the step to repeat'),
        ("mapping:", "unknown:", "jobs.repeat.mapping: is missing"),
        ("max_iteration_count: 3", "max_iteration_count: 1001", "from 1 to 1000"),
        ("max_iteration_count: 3", "max_iteration_count: 1000", ""),
        ("limits: {max_iteration_count: 3}", "limits: {}", "say how many iterations"),
        ("outputs.more}}", "outputs.mor}}", 'Did you mean "more"'),
        ("outputs.more}}", "outputs.n}}", "output n of step body is no condition"),
        ("[before]", "[befor]", 'Did you mean "before"'),
        ("[before]", "[before, n]", "gives the input n two outputs"),
        ("${{parent.jobs.body.inputs.n}}", "${{parent.jobs.after.inputs.n}}", "one of the inputs of the body"),
        ("outputs: {model: }", "outputs: {model: {path: ./m}}", "would be written by each iteration of a loop"),
        ("    command: echo ${", "    environment_variables: {N: '${{inputs.n}}'}\n    command: echo ${", "has ended"),
        ("  after:\n", "  body_2:\n", "which is that of another step"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_loop_is_said_once(workspace: Workspace, before: str, after: str, told: str) -> None:
    assert before in LOOP
    changed = LOOP.replace(before, after, 1)
    if told:
        (error,) = errors_of(workspace, changed)
        assert told in error
    else:
        # With the step after the loop, there are more than a job may have.
        assert "exceeds the limit of 1000 steps" in errors_of(workspace, changed)[0]


def test_a_loop_with_too_many_steps_names_its_limit(workspace: Workspace) -> None:
    steps = "".join(f"  c{number}: {{type: command, command: echo}}\n" for number in range(5))
    workspace.write("sub.yml", f"type: pipeline\njobs:\n{steps}")
    (error,) = errors_of(
        workspace,
        "type: pipeline\njobs:\n  s: {type: pipeline, component: ./sub.yml}\n"
        "  r: {type: do_while, body: '${{parent.jobs.s}}', mapping: {}, limits: {max_iteration_count: 300}}\n",
    )
    assert error.startswith("jobs.r.limits.max_iteration_count: 300 iterations of 6 steps are more than the 1000 steps")
