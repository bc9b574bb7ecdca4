"""A script as a public toolbox makes it: it takes its GPU from the last argument, looks in the environment for the
places of its data, and hands a command line on with other places in it.
"""

from __future__ import annotations

from compatibility_job import CompatibilityJob

SCRIPT = """
    import json, os, subprocess, sys


    def init():
        gpu = json.loads(sys.argv[-1])["gpu_index"]
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)


    def run(mini_batch):
        os.chdir(os.environ["AZ_BATCHAI_JOB_WORK_DIR"])
        command = sys.argv[sys.argv.index("[START]") + 1 : sys.argv.index("[END]")]
        models, made = os.environ["AZURE_ML_INPUT_models"], os.environ["AZURE_ML_OUTPUT_made"]
        for name in mini_batch:
            own = [os.path.join(made, os.path.basename(name)) if word == made else word for word in command]
            own = [os.path.join(models, "m.txt") if word == models else word for word in own]
            subprocess.run([sys.executable, *own], check=True)
        return [os.path.basename(name) + " " + os.environ["CUDA_VISIBLE_DEVICES"] for name in mini_batch]
"""
COPY = """
    import sys

    with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
        target.write(source.read())
"""
JOB = """
    type: pipeline
    jobs:
      score:
        type: parallel
        inputs:
          data: {type: uri_folder, path: ./data}
          models: {type: uri_folder, path: ./models}
        outputs:
          rows: {type: uri_file, path: ./rows.txt}
          made: {type: uri_folder, path: ./made}
        input_data: ${{inputs.data}}
        task:
          type: run_function
          code: ./code
          entry_script: score.py
          program_arguments: >-
            [START] copy.py ${{inputs.models}} ${{outputs.made}} [END]
          append_row_to: ${{outputs.rows}}
"""


def test_a_script_of_a_public_toolbox_finds_what_it_reads(job: CompatibilityJob) -> None:
    job.write("code/score.py", SCRIPT)
    job.write("code/copy.py", COPY)
    job.write("models/m.txt", "model")
    for name in ("a", "b"):
        job.write(f"data/{name}", "")
    job.write("job.yml", JOB)
    code, said = job.run()
    assert code == 0, said
    assert (job.folder / "rows.txt").read_text() == "a -1\nb -1\n"
    assert [(job.folder / "made" / name).read_text() for name in ("a", "b")] == ["model", "model"]
