"""Side inputs, chains of steps, and how rows are written."""

from __future__ import annotations

import pytest
from compatibility_job import CompatibilityJob


def test_side_inputs_arrive_as_paths_and_texts(job: CompatibilityJob) -> None:
    job.write("side/one.txt", "1")
    job.write("folder/two.txt", "2")
    job.write("table/three.csv", "a\n3\n")  # no MLTable file: only the path is wanted
    job.write("data/x", "")
    job.write(
        "code/score.py",
        """
        import argparse
        import os

        def init():
            global said
            parser = argparse.ArgumentParser()
            for name in ("file", "folder", "table", "text", "whole", "part", "yes"):
                parser.add_argument("--" + name)
            args, rest = parser.parse_known_args()
            assert os.path.isfile(args.file) and os.path.isdir(args.folder) and os.path.isdir(args.table)
            parts = [open(args.file).read(), open(os.path.join(args.folder, "two.txt")).read()]
            parts += [open(os.path.join(args.table, "three.csv")).read().split()[1]]
            said = "|".join([*parts, args.text, args.whole, args.part, args.yes, *rest])

        def run(mini_batch):
            return [said]
        """,
    )
    job.write(
        "job.yml",
        """
        type: pipeline
        inputs:
          text: "two words; and 'a quote'"
          whole: {type: integer, value: 7}
        jobs:
          score:
            type: parallel
            inputs:
              data: {type: uri_folder, path: ./data, mode: ro_mount}
              file: {type: uri_file, path: ./side/one.txt, mode: download}
              folder: {type: uri_folder, path: azureml:./folder}
              table: {type: mltable, path: ./table, mode: direct}
              text: ${{parent.inputs.text}}
              whole: {path: "${{parent.inputs.whole}}"}
              part: 2.5
              yes: true
            outputs:
              rows: {type: uri_file, path: ./rows.txt}
            input_data: ${{inputs.data}}
            task:
              type: run_function
              code: ./code
              entry_script: score.py
              append_row_to: ${{outputs.rows}}
              program_arguments: >-
                --file ${{inputs.file}} --folder ${{inputs.folder}} --table ${{inputs.table}} --text ${{inputs.text}}
                --whole=${{inputs.whole}} --part ${{inputs.part}} --yes ${{inputs.yes}} 'a b' --unknown
        """,
    )
    job.completed()
    said = "1|2|3|two words; and 'a quote'|7|2.5|True|a b|--unknown\n"
    assert (job.folder / "rows.txt").read_text() == said


def test_a_step_reads_what_another_gathered(job: CompatibilityJob) -> None:
    job.write("data/a.txt", "1")
    job.write("data/b.txt", "2")
    job.write("code/first.py", "def run(b):\n    return [open(path).read() + '1' for path in b]\n")
    job.write(
        "code/second.py",
        """
        import os
        import sys

        def run(mini_batch):
            assert sys.argv[1:3] == ["--from", mini_batch[0]]
            return [os.path.basename(mini_batch[0]) + " " + "+".join(open(mini_batch[0]).read().split())]
        """,
    )
    job.write(
        "job.yml",
        """
        type: pipeline
        outputs:
          all_rows: {type: uri_file, path: ./all.txt}
        jobs:
          second:
            type: parallel
            inputs:
              gathered:
                type: uri_file
                path: ${{parent.jobs.first.outputs.rows}}
                mode: ro_mount
            outputs:
              rows: ${{parent.outputs.all_rows}}
            input_data: ${{inputs.gathered}}
            task:
              type: run_function
              code: ./code
              entry_script: second.py
              program_arguments: --from ${{inputs.gathered}}
              append_row_to: ${{outputs.rows}}
          first:
            type: parallel
            inputs:
              data: {type: uri_folder, path: ./data}
            outputs:
              rows: {type: uri_file, path: "azureml://datastores/x/paths/${{name}}/first.csv"}
            input_data: ${{inputs.data}}
            task:
              type: run_function
              code: ./code
              entry_script: first
              append_row_to: ${{outputs.rows}}
        """,
    )
    job.completed()
    assert (job.folder / "all.txt").read_text() == "first.csv 11+21\n"


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        (None, "", 'a "b c"\n1 2.5\n'),
        ('{"append_row": {"pandas.DataFrame.to_csv": {"sep": ","}}}', "", "a,b c\n1,2.5\n"),
        ('{"append_row": {"pandas.DataFrame.to_csv": {"sep": ",", "index": true}}}', "", "0,a,b c\n1,1,2.5\n"),
        (None, "--append_row_dataframe_header True", 'x y\na "b c"\n1 2.5\n'),
        (
            '{"append_row": {"pandas.DataFrame.to_csv": {"sep": "\\t", "quoting": 1}}}',
            "--append_row_dataframe_header true",
            '"x"\t"y"\n"a"\t"b c"\n"1"\t"2.5"\n',
        ),
    ],
)
def test_rows_of_dataframes_are_written_as_the_settings_file_says(
    job: CompatibilityJob, settings: str | None, arguments: str, expected: str
) -> None:
    job.write("data/x", "")
    job.write("data/y", "")
    job.write(
        "code/score.py",
        """
        import pandas

        def run(mini_batch):
            return pandas.DataFrame({"x": ["a", "1"], "y": ["b c", 2.5]})
        """,
    )
    if settings:
        job.write("code/parallel_run_step.settings.json", settings)
    job.write_job("uri_folder", "./data")
    job.completed("--set", f"jobs.score.task.program_arguments={arguments}")
    assert (job.folder / "rows.txt").read_text() == expected
