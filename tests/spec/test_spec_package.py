"""A job file with all that it names, as it is published: the same job from another folder."""

from __future__ import annotations

from pathlib import Path

from spec_packages import check_package, write_package
from spec_workspace import STEP, Workspace, changed
from windrow.spec import LiteralInput, load_job
from windrow.spec.writing.package import JOB_FILE


def test_components_environments_and_settings_go_along(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write("parts/src/score.py", "def run(batch): return batch\n")
    workspace.write("parts/pip/base.txt", "numpy>=1.24,<2\n-c bounds.txt\n--pre\n")
    workspace.write("parts/pip/bounds.txt", "pandas<3\n")
    workspace.write("parts/conda.yml", "dependencies: [python=3.11, pip, scipy, pip: [-r pip/base.txt, rich]]\n")
    workspace.write(
        "parts/score.yml",
        """
        type: parallel
        is_deterministic: true
        inputs: {images: {type: uri_folder}, word: {type: string, default: a}}
        outputs: {rows: {type: uri_file}}
        input_data: ${{inputs.images}}
        task: {type: run_function, code: src, entry_script: score.py, environment: conda.yml,
               program_arguments: "--word ${{inputs.word}}", append_row_to: "${{outputs.rows}}"}
        """,
    )
    workspace.write("more/both.yml", "type: pipeline\njobs:\n  inner: {component: ../parts/score.yml}\n")
    workspace.write(
        "job.yml",
        """
        type: pipeline
        name: mine
        inputs: {images: {type: uri_folder, path: images}, word: b}
        jobs:
          one:
            component: parts/score.yml
            inputs: {images: "${{parent.inputs.images}}", word: "${{parent.inputs.word}}"}
            outputs: {rows: {type: uri_file, path: out/rows.txt}}
          two:
            component: parts/score.yml
            inputs: {images: {type: uri_folder, path: ./images}}
        """,
    )
    file, sets = workspace.folder / "job.yml", ("jobs.two.mini_batch_size=3", "inputs.word=c")
    package = write_package(file, tmp_path / "kept", sets)
    before, after = load_job(file, sets), load_job(tmp_path / "kept" / JOB_FILE)
    check_package(file, before.job, sets)
    assert (after.job.name, after.job.display_name) == (None, "mine")
    environment = after.job.steps[0].environment
    assert environment is not None and environment.constraints == ("pandas<3",) and environment.python == "3.11"
    assert len(package.code) == 1, "the code of one folder is kept once"
    # With another value of a parameter, too.
    other = load_job(tmp_path / "kept" / JOB_FILE, ['inputs.word="d e"'])
    assert other.job.steps[0].inputs["word"] == LiteralInput("d e")


def test_outputs_of_this_machine_go_to_the_place_of_a_served_master(workspace: Workspace, tmp_path: Path) -> None:
    step = changed(STEP, "outputs: {scores: {type: uri_file, path: ./out/rows.txt}}")
    file = workspace.write("job.yml", workspace.job_of(step))
    write_package(file, tmp_path / "kept", embedded=False)
    after = load_job(tmp_path / "kept" / JOB_FILE, embedded=False)
    assert after.job.steps[0].outputs["scores"].path is None and not after.own_outputs
