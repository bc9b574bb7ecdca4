"""The effective job as a document: whole both ways, canonical, and checked as what comes from the network."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_workspace import STEP, Workspace, changed, unhurried
from windrow.spec import (
    DataInput,
    DocumentError,
    EffectiveJob,
    EffectiveStep,
    Environment,
    Iteration,
    LiteralInput,
    OutputInput,
    PipelineOutput,
    Rows,
    RunIf,
    StepOutput,
    build_effective,
)
from windrow.spec.settings.fields import INT_MAX, TIMEOUT_S_MAX

Change = Callable[[dict[str, Any]], None]

names = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_-]{0,10}\Z")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
# Names of files that are no UTF-8 arrive as lone surrogates.
paths = st.binary(max_size=12).map(lambda raw: "/" + raw.replace(b"\0", b"").decode(errors="surrogateescape"))
plain = texts.filter(lambda text: "${{" not in text)
thresholds = st.integers(-1, INT_MAX)
seconds = st.integers(1, TIMEOUT_S_MAX)
file_names = st.none() | st.sampled_from(["rows.csv", "${{name}}.csv"])
asset_names = st.sampled_from([None, "scores", "a.b-c"])
versions = st.sampled_from([None, "1", "2024-01.b"])
data_types = st.sampled_from(["uri_folder", "uri_file", "mltable"])


@st.composite
def jobs(draw: st.DrawFn) -> EffectiveJob:
    steps: list[EffectiveStep] = []
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        outputs = draw(
            st.dictionaries(
                names,
                st.builds(
                    StepOutput,
                    data_types,
                    st.just("rw_mount"),
                    st.none() | paths,
                    file_names,
                    asset_names,
                    versions,
                    st.sampled_from([None, "boolean", "string"]),
                ),
                max_size=2,
            )
        )
        inputs: dict[str, LiteralInput | DataInput | OutputInput] = dict(
            draw(st.dictionaries(names, st.builds(LiteralInput, texts), max_size=2))
        )
        asset = draw(st.sampled_from([None, "azureml:data:1"]))
        inputs["major"] = DataInput(draw(data_types), "ro_mount", draw(paths), asset)
        if steps and steps[-1].outputs:
            inputs["bound"] = OutputInput(steps[-1].name, next(iter(steps[-1].outputs)), draw(data_types), "direct")
        values = [name for name, output in steps[-1].outputs.items() if output.value == "boolean"] if steps else []
        run_if = tuple(RunIf("if", draw(st.booleans()), steps[-1].name, held) for held in values)
        again = tuple(
            Iteration("do", draw(st.integers(2, 1000)), steps[-1].name, steps[-1].name, held) for held in values
        )
        arguments = draw(st.lists(plain, max_size=3)) + [f"--x=${{{{inputs.{given}}}}}" for given in inputs]
        steps.append(
            EffectiveStep(
                name=name,
                code_digest=draw(st.from_regex(r"\A[0-9a-f]{64}\Z")),
                entry_script=draw(st.sampled_from(["score.py", "a/b.py", "pkg.main"])),
                inputs=inputs,
                input_data=("major", "bound") if "bound" in inputs else ("major",),
                depends_on=(steps[-1].name,) if "bound" in inputs else (),
                run_if=(*run_if, RunIf("never", True))[: draw(st.integers(0, 2))],
                iterations=again[: draw(st.integers(0, 1))],
                arguments=tuple(arguments),
                environment_variables=draw(st.dictionaries(names, texts, max_size=2)),
                outputs=outputs,
                append_row_to=next(iter(outputs), None),
                mini_batch_size=draw(st.none() | st.integers(1, 2**62)),
                instance_count=draw(st.sampled_from([-1, 1, 7])),
                max_concurrency_per_instance=draw(st.none() | st.integers(1, INT_MAX)),
                error_threshold=draw(thresholds),
                mini_batch_error_threshold=draw(thresholds),
                allowed_failed_percent=draw(st.floats(0, 100)),
                max_retries=draw(st.integers(0, INT_MAX)),
                run_invocation_timeout_s=draw(seconds),
                progress_update_timeout_s=draw(st.none() | seconds),
                environment=draw(
                    st.sampled_from([None, Environment(), Environment("3.10", ("a",), ("b<2",), ("--pre",))])
                ),
                rows=Rows(
                    draw(st.dictionaries(st.just("sep") | st.just("quoting"), texts | st.integers(), max_size=2)),
                    draw(st.booleans()),
                ),
            )
        )
    bound = {"out": PipelineOutput(steps[0].name, next(iter(steps[0].outputs)))} if steps[0].outputs else {}
    return EffectiveJob(
        job_file=draw(texts),
        steps=tuple(steps),
        name=draw(st.none() | st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")),
        display_name=draw(texts),
        tags=draw(st.dictionaries(texts, texts, max_size=2)),
        priority=draw(st.integers(-5, 5)),
        warnings=tuple(draw(st.lists(texts, max_size=2))),
        outputs=bound,
    )


@given(jobs())
@settings(unhurried, max_examples=50)
def test_a_job_survives_its_document(job: EffectiveJob) -> None:
    document = job.to_json()
    assert EffectiveJob.from_json(document) == job
    assert EffectiveJob.from_json(document.encode("ascii")).to_json() == document


@given(jobs(), texts)
@settings(unhurried, max_examples=25)
def test_labels_do_not_change_the_run_and_everything_else_does(job: EffectiveJob, text: str) -> None:
    relabelled = job._replace(
        name="other", display_name=text, experiment_name=text, description=text, tags={"a": text}, priority=9, weight=3,
        warnings=(text,), job_file=text,
    )  # fmt: skip
    assert relabelled.run_digest == job.run_digest
    step = job.steps[0]
    for change in (
        {"code_digest": "f" * 64 if step.code_digest != "f" * 64 else "e" * 64},
        {"arguments": (*step.arguments, "more")},
        {"max_retries": step.max_retries ^ 1},
        {"environment_variables": {**step.environment_variables, "_more_": text}},
    ):
        other = job._replace(steps=(step._replace(**change), *job.steps[1:]))
        assert other.run_digest != job.run_digest


@pytest.fixture
def document(workspace: Workspace) -> dict[str, Any]:
    """A document of two steps, as a dict."""
    text = workspace.job_of(
        changed(STEP, "outputs: {scores: '${{parent.outputs.all}}'}"), "outputs: {all: }\n", "first"
    )
    bound = "inputs: {images: '${{parent.jobs.first.outputs.scores}}', word: hello}"
    text += workspace.job_of(changed(STEP, bound), "", "second").partition("jobs:\n")[2]
    loaded = workspace.job(text)
    document = json.loads(workspace.effective(loaded).to_json())
    assert isinstance(document, dict)
    return document


def test_what_came_later_is_written_where_it_is_used_so_that_earlier_documents_are_read(
    document: dict[str, Any],
) -> None:
    later = {"rank_mini_batch_count", "file_format", "mini_batch_rows", "exact_row_index", "mixed_types"}
    assert not any(later & step.keys() or "format" in step["rows"] for step in document["steps"])
    job = EffectiveJob.from_json(json.dumps(document))
    step = job.steps[0]._replace(exact_row_index=True, rows=job.steps[0].rows._replace(format="jsonl"))
    (written, _) = json.loads(job._replace(steps=(step, job.steps[1])).to_json())["steps"]
    assert written["exact_row_index"] is True and written["rows"]["format"] == "jsonl"
    earlier = job._replace(steps=tuple(step._replace(may_shut_down=True) for step in job.steps))
    assert not any("may_shut_down" in step for step in json.loads(earlier.to_json())["steps"])


def put(path: str, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        *way, last = [int(name) if name.isdigit() else name for name in path.split("/")]
        target: Any = document
        for name in way:
            target = target[name]
        target[last] = value

    return change


def drop(path: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        *way, last = path.split("/")
        target: Any = document
        for name in way:
            target = target[int(name) if name.isdigit() else name]
        del target[last]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("format", 2), "format: is 2"),
        (drop("steps"), "steps: is missing"),
        (put("extra", 1), "extra: is unknown"),
        (put("name", "../x"), "job name"),
        (put("name", "x" * 65), "job name"),
        (put("tags", {"a": 1}), "tags.a"),
        (put("display_name", "x\0y"), "without NUL"),
        (put("display_name", "\ud800"), "without NUL"),
        (put("display_name", "x" * 70_000), "at most 65536"),
        (put("priority", True), "priority"),
        (put("weight", 0), "weight"),
        (put("steps", []), "there is none"),
        (put("steps/0/name", "a/b"), "step name"),
        (put("steps/0/name", "second"), "same name"),
        (put("steps/0/code_digest", "A" * 64), "sha256"),
        (put("steps/0/entry_script", "../x.py"), "entry_script"),
        (put("steps/0/entry_script", "/x.py"), "entry_script"),
        (put("steps/0/entry_script", "os;x"), "entry_script"),
        (put("steps/0/arguments", ["${{inputs.nope}}"]), "does not have"),
        (put("steps/0/arguments", ["${{name}}"]), "does not have"),
        (put("steps/0/arguments", ["${{inputs"]), "well-formed"),
        (put("steps/0/arguments", "x"), "not a list"),
        (put("steps/0/environment_variables", {"A=B": "x"}), "not a valid name"),
        (put("steps/0/inputs/images/path", "relative"), "neither an absolute path"),
        (put("steps/0/inputs/images/kind", "magic"), "kind"),
        (put("steps/0/inputs/images/type", "uri"), "uri_folder"),
        (put("steps/0/inputs/images/more", 1), "unknown"),
        (put("steps/0/inputs", {}), "names no data input"),
        (put("steps/1/input_data", "word"), "names no data input"),
        (put("steps/0/outputs/scores/path", "x"), "neither an absolute path"),
        (put("steps/0/outputs/scores/file_name", "a/b"), "plain file name"),
        (put("steps/0/outputs/scores/file_name", ".."), "plain file name"),
        (put("steps/0/append_row_to", "nope"), "is not an output"),
        (put("steps/1/depends_on", []), "depends_on"),
        (put("steps/0/depends_on", ["second"]), "circle"),
        (put("steps/0/depends_on", ["third"]), "depends_on"),
        (put("steps/1/inputs/images/step", "third"), "third"),
        (put("steps/1/inputs/images/step", "second"), "depends_on"),
        (put("steps/0/instance_count", 0), "instance_count"),
        (put("steps/0/mini_batch_size", 0), "mini_batch_size"),
        (put("steps/0/logging_level", "LOUD"), "WARNING"),
        (put("steps/0/error_threshold", -2), "error_threshold"),
        (put("steps/0/error_threshold", 1.0), "error_threshold"),
        (put("steps/0/allowed_failed_percent", 101), "allowed_failed_percent"),
        (put("steps/0/run_invocation_timeout_s", 0), "run_invocation_timeout_s"),
        (put("steps/0/run_invocation_timeout_s", 259201), "run_invocation_timeout_s"),
        (put("steps/0/rows/dataframe_to_csv", {"path_or_buf": "/etc/x"}), "cannot be given"),
        (put("steps/0/rows/dataframe_header", 1), "dataframe_header"),
        (put("outputs/all/output", "nope"), "nope"),
        (put("steps/0/max_retries", 7), "run_digest"),
        (put("run_digest", "0" * 64), "run_digest"),
    ],
)
def test_a_document_that_was_tampered_with_is_refused(document: dict[str, Any], change: Change, said: str) -> None:
    assert EffectiveJob.from_json(json.dumps(document))
    change(document)
    with pytest.raises(DocumentError) as caught:
        EffectiveJob.from_json(json.dumps(document))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '{"a": 1, "a": 2}', '{"format": NaN}', b"\xff", "[" * 100_000, "x" * (4 * 1024 * 1024 + 1)],
)
def test_what_is_no_document_at_all_is_refused(text: str | bytes) -> None:
    with pytest.raises(DocumentError):
        EffectiveJob.from_json(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
        max_leaves=8,
    ),
    st.data(),
)
@unhurried
def test_nothing_put_anywhere_escapes_as_another_error(value: object, data: st.DataObject) -> None:
    step = EffectiveStep(
        "s",
        "a" * 64,
        "s.py",
        {"i": DataInput("uri_folder", "direct", "/x")},
        ("i",),
        outputs={"o": StepOutput("uri_file", "upload")},
    )
    target: Any = json.loads(EffectiveJob("j", (step,), outputs={"p": PipelineOutput("s", "o")}).to_json())
    document = target
    while True:
        keys = sorted(target) if isinstance(target, dict) else range(len(target))
        key: Any = data.draw(st.sampled_from(list(keys)))
        if isinstance(target[key], dict | list) and target[key] and data.draw(st.booleans()):
            target = target[key]
            continue
        target[key] = value
        break
    try:
        EffectiveJob.from_json(json.dumps(document))
    except DocumentError:
        pass


def test_the_code_digests_are_those_of_the_folders(workspace: Workspace) -> None:
    loaded = workspace.loaded()
    folder = loaded.code_folders["score"]
    job = build_effective(loaded, {folder: "b" * 64}, name="mine", priority=3)
    assert (job.steps[0].code_digest, job.name, job.priority) == ("b" * 64, "mine", 3)
    with pytest.raises(KeyError):
        build_effective(loaded, {})


def test_equal_files_give_equal_digests_and_another_setting_another(workspace: Workspace) -> None:
    first = workspace.effective(workspace.loaded()).run_digest
    again = workspace.effective(workspace.loaded(more="# moved down\ndescription: new\n")).run_digest
    other = workspace.effective(workspace.loaded("mini_batch_size: 3")).run_digest
    assert (first == again, first == other) == (True, False)


@pytest.mark.parametrize(
    ("script", "may"),
    [
        ("def run(mini_batch):\n    return mini_batch\n", False),
        ("def run(mini_batch):\n    return mini_batch\ndef shutdown():\n    pass\n", True),
        ("from base import *\n", True),
        ("from base import run, shutdown\n", True),
        ("def run(mini_batch):\n    return mini_batch\n" + "#\n" * 600_000, True),
    ],
    ids=["none", "own", "star", "imported", "too long to be looked at"],
)
def test_whether_a_script_may_have_a_shutdown(workspace: Workspace, script: str, may: bool) -> None:
    workspace.write("src/score.py", script)
    assert workspace.job(workspace.job_of(STEP)).job.steps[0].may_shut_down is may
