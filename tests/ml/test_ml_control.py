"""`condition` and `do_while`: the same job as their YAML, and what they do not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from notebook_pipelines import digest, from_yaml
from windrow.errors import UsageError
from windrow.ml import Output, command, load_component, load_job
from windrow.ml.dsl import pipeline
from windrow.ml.dsl._condition import condition
from windrow.ml.dsl._do_while import do_while

BODY = """\
type: command
command: echo ${{inputs.n}} $[[${{inputs.model}}]]
inputs: {n: {type: integer, default: 0}, model: {type: uri_folder, optional: true}}
outputs: {n: {type: integer}, model: {type: uri_folder}, more: {type: boolean, is_control: true}}
"""
TWIN = """\
type: pipeline
inputs: {flag: {type: boolean, value: true}}
jobs:
  check: {type: command, command: echo, outputs: {go: {type: boolean, is_control: true}}}
  yes: {type: command, command: echo yes}
  no: {type: command, command: echo no}
  body: {type: command, component: ./body.yml}
  last: {type: command, command: "echo ${{inputs.n}}", inputs: {n: "${{parent.jobs.body.outputs.n}}"}}
  decide:
    type: if_else
    condition: ${{parent.jobs.check.outputs.go}}
    true_block: ${{parent.jobs.yes}}
    false_block: [ "${{parent.jobs.no}}", "${{parent.jobs.body}}" ]
  fixed: {type: if_else, condition: "${{parent.inputs.flag}}", false_block: "${{parent.jobs.last}}"}
  repeat:
    type: do_while
    body: ${{parent.jobs.body}}
    condition: more
    mapping: {n: n, model: [model]}
    limits: {max_iteration_count: 3}
"""


def built(notebook: Path, check_is: str = "step") -> Any:
    (notebook / "body.yml").write_text(BODY)
    component = load_component("body.yml")
    go = {"go": Output(type="boolean", is_control=True)}

    @pipeline(name="job")
    def job(flag: bool = True) -> None:
        check = command(command="echo", outputs=go)
        yes = command(command="echo yes")
        no = command(command="echo no")
        body = component()
        last = command(command="echo ${{inputs.n}}", inputs={"n": body.outputs.n})
        decide = condition(check if check_is == "step" else check.outputs.go, true_block=yes, false_block=[no, body])
        fixed = condition(flag, false_block=last)
        repeat = do_while(
            body,
            mapping={body.outputs.n: body.inputs.n, "model": [body.inputs.model]},
            max_iteration_count=3,
            condition=body.outputs.more,
        )
        assert (decide.type, fixed.type, repeat.type) == ("if_else", "if_else", "do_while")
        assert decide.true_block == [yes] and repeat.body is body

    return job()


@pytest.mark.parametrize("check_is", ["step", "output"])
def test_control_nodes_are_those_of_the_yaml(notebook: Path, check_is: str) -> None:
    made = built(notebook, check_is)
    assert digest(made.load()) == digest(from_yaml(notebook, TWIN))
    assert list(made.jobs) == ["check", "yes", "no", "body", "last", "decide", "fixed", "repeat"]


def test_what_is_dumped_loads_to_the_same_job(notebook: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "job.yml"
    made = built(notebook)
    made.dump(elsewhere)
    assert digest(load_job(elsewhere).load()) == digest(made.load())


def test_control_nodes_stay_in_pipelines_that_are_steps(notebook: Path) -> None:
    (notebook / "body.yml").write_text(BODY)
    component = load_component("body.yml")

    @pipeline
    def inner(n: int) -> Any:
        body = component(n=n)
        do_while(body, {body.outputs.n: body.inputs.n}, 2, body.outputs.more)
        return {"n": body.outputs.n, "more": body.outputs.more}

    @pipeline
    def outer() -> None:
        both = inner(n=1)
        do_while(both, {"n": both.inputs.n}, 2, "more")

    names = [step.name for step in outer().load().job.steps]
    assert names == ["both__body", "both__body_2", "both_2__body", "both_2__body_2"]


def test_what_they_do_not_take_is_said(notebook: Path) -> None:
    (notebook / "body.yml").write_text(BODY)
    body, other = load_component("body.yml")(), load_component("body.yml")()
    with pytest.raises(UsageError, match="has 3 outputs, and a condition is one of them"):
        condition(body, true_block=other)
    with pytest.raises(UsageError, match="the condition is a int"):
        condition(1, true_block=other)
    with pytest.raises(UsageError, match="true_block holds a str"):
        condition(True, true_block="body")
    with pytest.raises(UsageError, match="the body is a str"):
        do_while("body", {}, 2)
    with pytest.raises(UsageError, match="must be an output of the body"):
        do_while(body, {}, 2, other.outputs.more)
    with pytest.raises(UsageError, match="must be an input of the body"):
        do_while(body, {"n": other.inputs.n}, 2)
