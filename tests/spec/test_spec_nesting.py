"""Pipelines that are steps of others: names, bindings through them, defaults, settings, and what is wrong in them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from spec_workspace import Workspace
from windrow.spec import DataInput, EffectiveJob, EffectiveStep, LiteralInput, LoadedJob, OutputInput, PipelineOutput

PREPARE = """\
type: command
inputs:
  raw: {type: uri_folder}
  word: {type: string, default: plain}
  extra: {type: string, optional: true}
outputs:
  ready: {type: uri_folder}
command: cp -r ${{inputs.raw}}/. ${{outputs.ready}}; echo ${{inputs.word}} $[[${{inputs.extra}}]]
"""
SUB = """\
type: pipeline
name: sub
inputs:
  raw: {type: uri_folder}
  word: {type: string, default: by the sub}
  extra: {type: string, optional: true}
  size: {type: integer, default: 3}
outputs:
  rows: {type: uri_file}
  ready: {type: uri_folder}
jobs:
  prepare:
    type: command
    component: ./prepare.yml
    inputs:
      raw: ${{parent.inputs.raw}}
      word: ${{parent.inputs.word}}
      extra: ${{parent.inputs.extra}}
    outputs:
      ready: ${{parent.outputs.ready}}
  score:
    type: parallel
    inputs:
      images: {type: uri_folder, path: '${{parent.jobs.prepare.outputs.ready}}'}
      again: ${{parent.jobs.prepare.inputs.word}}
    outputs:
      rows: ${{parent.outputs.rows}}
    input_data: ${{inputs.images}}
    mini_batch_size: ${{parent.inputs.size}}
    task: {type: run_function, code: ../src, entry_script: score.py, append_row_to: '${{outputs.rows}}'}
"""
MIDDLE = """\
inputs: {raw: {type: uri_folder}}
outputs: {rows: {type: uri_file}}
jobs:
  first:
    type: pipeline
    component: ./sub.yml
    inputs: {raw: '${{parent.inputs.raw}}'}
  second:
    component: ./sub.yml
    inputs: {raw: '${{parent.jobs.first.outputs.ready}}', word: deep}
    outputs: {rows: '${{parent.outputs.rows}}'}
"""
JOB = """\
type: pipeline
inputs:
  images: {type: uri_folder, path: ./images}
outputs:
  result: {type: uri_file, path: ./rows.csv}
jobs:
  sub:
    type: pipeline
    component: ./parts/sub.yml
    inputs:
      raw: ${{parent.inputs.images}}
    outputs:
      rows: ${{parent.outputs.result}}
"""
READER = """\
  last:
    type: command
    inputs: {rows: '${{parent.jobs.sub.outputs.rows}}', word: '${{parent.jobs.sub.inputs.word}}'}
    command: cat ${{inputs.rows}}
"""


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.write("parts/prepare.yml", PREPARE)
    workspace.write("parts/sub.yml", SUB)
    workspace.write("parts/middle.yml", MIDDLE)
    return workspace


def steps(loaded: LoadedJob) -> dict[str, EffectiveStep]:
    return {step.name: step for step in loaded.job.steps}


def test_the_steps_of_a_pipeline_that_is_a_step_are_the_jobs(workspace: Workspace) -> None:
    loaded = workspace.job(JOB + READER)
    made = steps(loaded)
    assert list(made) == ["sub__prepare", "sub__score", "last"]
    assert made["sub__prepare"].inputs == {
        "raw": DataInput("uri_folder", "ro_mount", str(workspace.folder / "images")),
        "word": LiteralInput("by the sub"),
    }
    assert made["sub__score"].inputs["images"] == OutputInput("sub__prepare", "ready", "uri_folder", "ro_mount")
    assert made["sub__score"].inputs["again"] == LiteralInput("by the sub")
    assert made["sub__score"].mini_batch_size == 3
    assert made["sub__score"].outputs["rows"].path == str(workspace.folder / "rows.csv")
    assert made["last"].inputs["rows"] == OutputInput("sub__score", "rows", "uri_file", "ro_mount")
    assert made["last"].inputs["word"] == LiteralInput("by the sub")
    assert loaded.job.outputs == {"result": PipelineOutput("sub__score", "rows")}
    assert {name: step.depends_on for name, step in made.items()} == {
        "sub__prepare": (),
        "sub__score": ("sub__prepare",),
        "last": ("sub__score",),
    }
    assert loaded.code_folders["sub__score"] == str(workspace.folder / "src")
    assert loaded.warnings == ()
    origin = loaded.origins["jobs.sub__score.mini_batch_size"]
    assert (origin.kind, origin.where.rpartition("/")[2]) == ("component", "sub.yml:29")


def test_pipelines_are_nested_to_any_depth(workspace: Workspace) -> None:
    loaded = workspace.job(
        JOB.replace("sub.yml", "middle.yml") + READER.partition(", word")[0] + "}\n    command: ls\n"
    )
    made = steps(loaded)
    inner = ["sub__first__prepare", "sub__first__score", "sub__second__prepare", "sub__second__score"]
    assert list(made) == [*inner, "last"]
    assert made[inner[2]].inputs["raw"] == OutputInput(inner[0], "ready", "uri_folder", "ro_mount")
    assert made[inner[2]].inputs["word"] == LiteralInput("deep")
    assert made["last"].depends_on == (inner[3],)
    assert made[inner[3]].outputs["rows"].path == str(workspace.folder / "rows.csv")
    assert made[inner[1]].outputs["rows"].path is None
    assert loaded.job.outputs == {"result": PipelineOutput(inner[3], "rows")}


def test_a_component_in_the_file_is_as_one_of_its_own(workspace: Workspace) -> None:
    """As the vendor's client dumps it."""
    sub = SUB.replace("../src", "./src").replace("./prepare.yml", "./parts/prepare.yml")
    inline = JOB.replace("component: ./parts/sub.yml", "component:\n" + textwrap.indent(sub.strip(), "      "))
    as_file, inlined = workspace.job(JOB), workspace.job(inline)
    assert inlined.job.steps == as_file.job.steps
    assert inlined.job.outputs == as_file.job.outputs


@pytest.mark.parametrize(
    ("given", "step", "name", "expected"),
    [
        ("word: given", "sub__prepare", "word", LiteralInput("given")),
        ("word: {type: string, value: given}", "sub__prepare", "word", LiteralInput("given")),
        ("word: a ${{parent.inputs.images}}", None, "", None),
        ("extra: more", "sub__prepare", "extra", LiteralInput("more")),
        ("word: {path: '${{parent.jobs.other.inputs.word}}'}", "sub__prepare", "word", LiteralInput("other")),
        ("size: 9", "sub__score", "mini_batch_size", 9),
    ],
)
def test_inputs_go_through_to_the_steps(
    workspace: Workspace, given: str, step: str | None, name: str, expected: object
) -> None:
    other = "  other:\n    type: command\n    inputs: {word: other}\n    command: echo ${{inputs.word}}\n"
    text = JOB.replace("    outputs:\n      rows: $", f"      {given}\n    outputs:\n      rows: $") + other
    if step is None:
        (problem,) = workspace.problems(text)
        assert problem.key == "jobs.sub.inputs.word"
        return
    made = steps(workspace.job(text))[step]
    assert (made.mini_batch_size if name == "mini_batch_size" else made.inputs[name]) == expected


@pytest.mark.parametrize(
    ("embedded", "settings", "compute", "warned"),
    [
        ("", "", "outer", None),
        ("settings: {default_compute: inner}\n", "", "outer", "parts/sub.yml:1: jobs.sub.component.settings"),
        ("", "settings: {default_compute: inner}", "outer", "job.yml:14: jobs.sub.settings"),
        ("", "compute: inner", "outer", "job.yml:14: jobs.sub.compute"),
        ("", "mini_batch_size: 4", "outer", "job.yml:14: jobs.sub.mini_batch_size"),
    ],
)
def test_settings_of_the_job_hold_for_all_its_steps(
    workspace: Workspace, embedded: str, settings: str, compute: str, warned: str | None
) -> None:
    workspace.write("parts/sub.yml", embedded + SUB)
    loaded = workspace.job(f"{JOB}    {settings}\nsettings: {{default_compute: azureml:outer}}\n")
    assert {step.compute for step in loaded.job.steps} == {compute}
    told = [f"{Path(w.file).relative_to(workspace.folder)}:{w.line}: {w.key}" for w in loaded.warnings]
    assert told == ([warned] if warned else [])


def test_the_compute_of_a_step_can_be_an_input(workspace: Workspace) -> None:
    sub = SUB.replace("  size:", "  node: {type: string, default: azureml:gpu}\n  size:").replace(
        "    type: parallel\n", "    type: parallel\n    compute: ${{parent.inputs.node}}\n"
    )
    workspace.write("parts/sub.yml", sub)
    assert steps(workspace.job(JOB))["sub__score"].compute == "gpu"


def test_outputs_without_a_place_go_to_the_default_datastore_by_their_names(workspace: Workspace) -> None:
    text = (
        JOB.replace("result: {type: uri_file, path: ./rows.csv}", "result:") + "settings: {default_datastore: lake}\n"
    )
    made = steps(workspace.job(text, embedded=False))
    folder = "azureml://datastores/lake/paths/azureml/${{name}}"
    assert made["sub__score"].outputs["rows"].path == f"{folder}/result/parallel_run_step.txt"
    assert made["sub__prepare"].outputs["ready"].path == f"{folder}/sub__prepare/ready"


@pytest.mark.parametrize(
    ("change", "step", "found"),
    [
        ("jobs.sub.jobs.score.mini_batch_size=8", "sub__score", lambda step: step.mini_batch_size == 8),
        ("jobs.sub.jobs.score.retry_settings.timeout=8", "sub__score", lambda step: step.run_invocation_timeout_s == 8),
        ("jobs.sub.jobs.prepare.inputs.word=set", "sub__prepare", lambda step: step.inputs["word"].value == "set"),
        ("jobs.sub.inputs.word=set", "sub__prepare", lambda step: step.inputs["word"].value == "set"),
        ("jobs.sub.jobs.score.task.program_arguments=-v", "sub__score", lambda step: step.arguments == ("-v",)),
    ],
)
def test_set_reaches_into_a_pipeline(workspace: Workspace, change: str, step: str, found: object) -> None:
    assert callable(found)
    assert found(steps(workspace.job(JOB, change))[step])


def test_set_by_the_name_in_the_job_tells_the_path(workspace: Workspace) -> None:
    (problem,) = workspace.problems(JOB, "jobs.sub__score.mini_batch_size=8")
    assert "write jobs.sub.jobs.score instead" in problem.message


def test_set_leaves_out_a_pipeline_or_a_step_in_it(workspace: Workspace) -> None:
    assert list(steps(workspace.job(JOB + READER.replace("'${{parent.jobs.sub.outputs.rows}}', word: "
        "'${{parent.jobs.sub.inputs.word}}'", "./one.csv"), "jobs.sub=null"))) == ["last"]  # fmt: skip
    sets = ("jobs.sub.jobs.prepare=null", "jobs.sub.jobs.score.inputs.images=./images")
    text = SUB.replace("      again: ${{parent.jobs.prepare.inputs.word}}\n", "")
    workspace.write("parts/sub.yml", text)
    assert list(steps(workspace.job(JOB, *sets))) == ["sub__score"]


@pytest.mark.parametrize(
    ("sub", "job", "file", "key", "says"),
    [
        (("mini_batch_size: $", "mini_batch_size: x$"), None, "parts/sub.yml:29", "jobs.sub.jobs.score.mini_batch_size",
         "it must be"),
        (("{type: run_function,", "{type: run_function, entry_scrip: a,"), None, "parts/sub.yml:30",
         "jobs.sub.jobs.score.task.entry_scrip", None),
        (("entry_script: score.py", "entry_script: gone.py"), None, "parts/sub.yml:30",
         "jobs.sub.jobs.score.task.entry_script", "gone.py"),
        (("parent.inputs.raw", "parent.inputs.rawe"), None, "parts/sub.yml:16", "jobs.sub.jobs.prepare.inputs.raw",
         'there is no pipeline input "rawe". Did you mean "raw"?'),
        (("jobs.prepare.outputs", "jobs.last.outputs"), None, "parts/sub.yml:24", "jobs.sub.jobs.score.inputs.images",
         "Available: prepare, score. If that step was left out, give this input the data that it made: "
         "--set jobs.sub.jobs.score.inputs.images=./path"),
        (("parent.outputs.ready", "parent.outputs.redy"), None, "parts/sub.yml:20",
         "jobs.sub.jobs.prepare.outputs.ready", 'Did you mean "ready"?'),
        (("./prepare.yml", "./gone.yml"), None, "parts/sub.yml:14", "jobs.sub.jobs.prepare.component",
         "does not exist"),
        (("type: parallel", "type: sweep"), None, "parts/sub.yml:22", "jobs.sub.jobs.score.type",
         "--set jobs.sub.jobs.score=null"),
        (("jobs:", "jobs_:"), None, "parts/sub.yml:1", "jobs.sub.jobs", "has no steps"),
        (("    outputs:\n      rows: ${{parent.outputs.rows}}\n", "    outputs: {rows: }\n"), None, "job.yml:16",
         "jobs.last.inputs.rows", "no step of the pipeline sub writes its output rows"),
        (None, ("raw: ", "rwa: "), "job.yml:8", "jobs.sub.inputs.raw", "has no value"),
        (None, ("./parts/sub.yml", "./parts/gone.yml"), "job.yml:9", "jobs.sub.component", "does not exist"),
        (None, ("    component: ./parts/sub.yml\n", ""), "job.yml:8", "jobs.sub.component", "is missing"),
        (None, ("    component: ./parts/sub.yml\n", "    jobs: {}\n"), "job.yml:9", "jobs.sub.jobs",
         "come from its component"),
        (None, ("type: pipeline\n    c", "type: command\n    c"), "job.yml:8", "jobs.sub.type",
         'its component is of type "pipeline"'),
        (None, ("outputs.rows}", "outputs.rose}"), "job.yml:16", "jobs.last.inputs.rows",
         'step sub: there is no output "rose". Did you mean "rows"?'),
        (None, ("rows: ${{parent.outputs.result", "rows: ${{parent.outputs.gone"), "job.yml:13",
         "jobs.sub.outputs.rows", 'there is no pipeline output "gone"'),
        (None, ("./parts/sub.yml", "./job.yml"), "job.yml:9", "jobs.sub.jobs.sub.component",
         "would put a pipeline into itself: job.yml -> job.yml"),
        (None, ("  last:", "  sub__score:"), "job.yml:14", "jobs.sub__score", "which is that of another step"),
        (None, ("  sub:", f"  {'s' * 60}:"), "job.yml:16", "jobs.last.inputs.rows", 'there is no step "sub"'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_its_place(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    sub: tuple[str, str] | None,
    job: tuple[str, str] | None,
    file: str,
    key: str,
    says: str | None,
) -> None:
    monkeypatch.chdir(workspace.folder)
    workspace.write("parts/sub.yml", SUB.replace(*sub, 1) if sub else SUB)
    text = JOB + READER
    if says is None:
        told = workspace.job(text).warnings
    else:
        told = tuple(workspace.problems(text.replace(*job, 1) if job else text))
    (problem,) = [problem for problem in told if problem.key == key]
    assert f"{problem.file}:{problem.line}" == file
    assert (says or "unknown here") in problem.message


def test_an_input_that_only_optional_ones_read_need_not_be_given(workspace: Workspace) -> None:
    workspace.write("parts/sub.yml", SUB.replace("extra: {type: string, optional: true}", "extra: {type: string}"))
    assert "extra" not in steps(workspace.job(JOB))["sub__prepare"].inputs


def test_files_that_name_each_other_are_told_as_a_circle(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace.folder)
    step = "type: pipeline\njobs:\n  on: {type: pipeline, component: ./%s.yml}\n"
    workspace.write("parts/a.yml", step % "b")
    workspace.write("parts/b.yml", step % "a")
    (problem,) = workspace.problems("type: pipeline\njobs:\n  in: {type: pipeline, component: ./parts/a.yml}\n")
    assert str(problem).startswith("parts/b.yml:3:35: jobs.in.jobs.on.jobs.on.component: would put a pipeline into ")
    assert "parts/a.yml -> parts/b.yml -> parts/a.yml" in problem.message


def test_pipelines_that_double_at_each_level_end(workspace: Workspace) -> None:
    for level in range(30):
        step = f"{{type: pipeline, component: ./l{level + 1}.yml}}" if level < 29 else "{type: command, command: ls}"
        workspace.write(f"l{level}.yml", f"type: pipeline\njobs:\n  a: {step}\n  b: {step}\n")
    problems = workspace.problems("type: pipeline\njobs:\n  top: {type: pipeline, component: ./l0.yml}\n")
    assert [problem for problem in problems if "exceeds the limit of 1000 steps" in problem.message]


def test_a_job_has_a_thousand_steps_at_most(workspace: Workspace) -> None:
    steps = [f"  s{at}: {{type: command, command: ls}}\n" for at in range(1001)]
    assert len(workspace.job(f"type: pipeline\njobs:\n{''.join(steps[:1000])}").job.steps) == 1000
    (problem,) = workspace.problems(f"type: pipeline\njobs:\n{''.join(steps)}")
    assert (problem.key, problem.line) == ("jobs.s1000", 1003)
    assert "exceeds the limit of 1000 steps" in problem.message


def test_a_name_that_is_too_long_is_told(workspace: Workspace) -> None:
    for level in range(3):
        inner = f"{{type: pipeline, component: ./l{level + 1}.yml}}" if level < 2 else "{type: command, command: ls}"
        workspace.write(f"l{level}.yml", f"type: pipeline\njobs:\n  {'n' * 60}: {inner}\n")
    (problem,) = workspace.problems("type: pipeline\njobs:\n  top: {type: pipeline, component: ./l0.yml}\n")
    assert "which has more than 128 characters" in problem.message


SIDE = "{type: command, command: ls}"
ORDERS = [
    # By input: what the pipeline is given, though no step in it reads that.
    (
        "inputs: {after: {type: uri_folder}}\njobs: {one: SIDE, two: SIDE}",
        "first: {type: command, command: ls, outputs: {x: }}\n"
        "  sub: {type: pipeline, component: ./sub.yml, inputs: {after: '${{parent.jobs.first.outputs.x}}'}}",
        {"first": (), "sub__one": ("first",), "sub__two": ("first",)},
    ),
    # By output: what another step in the pipeline does belongs to it.
    (
        "outputs: {x: {type: uri_folder}}\n"
        "jobs: {one: SIDE, two: {type: command, command: ls, outputs: {x: '${{parent.outputs.x}}'}}}",
        "sub: {type: pipeline, component: ./sub.yml}\n"
        "  last: {type: command, command: ls, inputs: {x: '${{parent.jobs.sub.outputs.x}}'}}",
        {"sub__one": (), "sub__two": (), "last": ("sub__one", "sub__two")},
    ),
    # Those that wait for others of the pipeline need not wait twice.
    (
        "inputs: {after: {type: uri_folder, optional: true}}\noutputs: {x: {type: uri_folder}}\njobs:\n"
        "  one: {type: command, command: ls, outputs: {x: }}\n"
        "  two: {type: command, command: ls, inputs: {x: '${{parent.jobs.one.outputs.x}}'},"
        " outputs: {x: '${{parent.outputs.x}}'}}",
        "sub: {type: pipeline, component: ./sub.yml}\n"
        "  next: {type: pipeline, component: ./sub.yml, inputs: {after: '${{parent.jobs.sub.outputs.x}}'}}",
        {"sub__one": (), "sub__two": ("sub__one",), "next__one": ("sub__two",), "next__two": ("next__one",)},
    ),
]


@pytest.mark.parametrize(("sub", "jobs", "expected"), ORDERS)
def test_a_pipeline_waits_for_its_inputs_and_is_awaited_as_a_whole(
    workspace: Workspace, sub: str, jobs: str, expected: dict[str, tuple[str, ...]]
) -> None:
    workspace.write("sub.yml", sub.replace("SIDE", SIDE))
    loaded = workspace.job(f"type: pipeline\njobs:\n  {jobs}\n")
    assert {name: step.depends_on for name, step in steps(loaded).items()} == expected
    document = workspace.effective(loaded).to_json()
    assert EffectiveJob.from_json(document).steps == workspace.effective(loaded).steps


def test_pipelines_that_wait_for_each_other_are_told(workspace: Workspace) -> None:
    workspace.write("sub.yml", ORDERS[2][0])
    (problem,) = workspace.problems("""\
        type: pipeline
        jobs:
          a: {type: pipeline, component: ./sub.yml, inputs: {after: '${{parent.jobs.b.outputs.x}}'}}
          b: {type: pipeline, component: ./sub.yml, inputs: {after: '${{parent.jobs.a.outputs.x}}'}}
        """)
    assert "waits for itself: a__one -> b__two -> b__one -> a__two -> a__one" in problem.message
