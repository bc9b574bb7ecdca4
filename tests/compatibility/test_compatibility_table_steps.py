"""Jobs whose MLTable file filters, samples, cuts off, chooses and converts."""

from __future__ import annotations

from compatibility_job import CompatibilityJob

SCRIPT = """
def init():
    global calls
    calls = 0

def run(mini_batch):
    assert len(mini_batch), "run() is not called for nothing"
    return mini_batch
"""


def test_a_table_with_every_step(job: CompatibilityJob) -> None:
    lines = [f"{at},{'UK' if at % 3 else 'FR'},{at / 4},2021-01-{at % 28 + 1:02}" for at in range(1000)]
    job.write("table/a.csv", "id,location,temperature,day\n" + "\n".join(lines[:500]) + "\n")
    job.write("table/b.csv", "id,location,temperature,day\n" + "\n".join(lines[500:]) + "\n")
    job.write(
        "table/MLTable",
        """
        type: mltable
        paths:
          - pattern: ./*.csv
        transformations:
          - read_delimited:
              delimiter: ","
              header: all_files_same_headers
              encoding: utf8
          - filter: col("temperature") > 32 and col("location") == "UK"
          - skip: 5
          - take: 400
          - convert_column_types:
              - {columns: id, column_type: string}
              - {columns: [temperature], column_type: int}
          - drop_columns: [location, day]
        metadata: {made: by hand}
        traits: {index_columns: id}
        """,
    )
    job.write("code/score.py", SCRIPT)
    job.write_job("mltable", "./table", settings="mini_batch_size: '600'")
    said = job.completed()
    kept = [at for at in range(1000) if at / 4 > 32 and at % 3][5:405]
    rows = (job.folder / "rows.txt").read_text().splitlines()
    # A converted column is told, since decimals were cut.
    assert rows == [f"{at} {int(at / 4)}" for at in kept]
    assert "400 items" in said and "400 rows" in said


def test_mini_batches_of_which_nothing_is_left(job: CompatibilityJob) -> None:
    job.write("table/a.csv", "id,x\n" + "".join(f"{at},{at % 100}\n" for at in range(1000)))
    table = job.write(
        "table/MLTable", "paths: [{file: ./a.csv}]\ntransformations:\n  - read_delimited\n  - filter: x == 50\n"
    )
    job.write("code/score.py", SCRIPT)
    arguments = "--append_row_dataframe_header True --error_threshold 0"
    job.write_job("mltable", "./table", settings="mini_batch_size: 100")
    said = job.completed("--set", f"jobs.score.task.program_arguments={arguments}")
    assert "10 items" in said
    rows = (job.folder / "rows.txt").read_text().splitlines()
    assert rows == ["id x", *(f"{at} 50" for at in range(50, 1000, 100))]
    table.write_text(table.read_text().replace("50", "-1"))
    code, said = job.run("--restart")
    assert code == 1 and "the steps in the input's MLTable file leave no rows" in said
