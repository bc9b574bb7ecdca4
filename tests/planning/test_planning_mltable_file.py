"""The MLTable file: what it means, and errors that name line, key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from windrow.spec.reading.problems import Problems
from windrow.spec.tables.columns import ColumnType
from windrow.spec.tables.mltable import ReadDelimited, ReadJsonLines, ReadParquet, read_mltable

PATHS = "paths:\n  - file: ./a.csv\n"


def problems_of(tmp_path: Path, text: str) -> tuple[list[str], list[str]]:
    """Errors and warnings, without the file's name."""
    problems = Problems()
    file = tmp_path / "MLTable"
    file.write_text(text)
    table = read_mltable(file, problems)
    assert (table is None) == bool(problems.errors)
    return [str(one).split("MLTable", 1)[1] for one in problems.errors], [one.message for one in problems.warnings]


def test_a_full_file(tmp_path: Path) -> None:
    file = tmp_path / "MLTable"
    file.write_text(
        """
$schema: https://azuremlschemas.azureedge.net/latest/MLTable.schema.json
type: mltable
paths:
  - file: ./a b.csv
  - folder: file:///data/x
  - pattern: ./**/*.csv
transformations:
  - read_delimited:
      delimiter: "\\t"
      header: from_first_file
      encoding: latin1
      support_multi_line: true
      empty_as_string: true
      include_path_column: true
      path_column: Path
      partition_size: 5
      infer_column_types:
        sample_size: 7
        column_type_overrides:
          - columns: [a, b]
            column_type: int
          - columns: c
            column_type:
              boolean: {true_values: [y], false_values: [n], mismatch_as: "false"}
metadata: {anything: [1, 2]}
traits: {timestamp_column: a}
"""
    )
    problems = Problems()
    table = read_mltable(file, problems)
    assert problems.errors == [] and problems.warnings == [] and table is not None
    assert [entry[:2] for entry in table.paths] == [
        ("file", "./a b.csv"),
        ("folder", "/data/x"),
        ("pattern", "./**/*.csv"),
    ]
    read = table.read
    assert isinstance(read, ReadDelimited)
    assert read[:6] == ("\t", "from_first_file", "windows-1252", True, True, True)
    assert (read.infer, read.sample_rows, read.partition_size) == (True, 7, 5)
    assert [override.columns for override in read.overrides] == [("a", "b"), ("c",)]
    assert read.overrides[1].type == ColumnType("boolean", (), ("y",), ("n",), "false")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("- read_delimited", ReadDelimited()),
        ("- read_delimited:", ReadDelimited()),
        ("- read_parquet: {include_path_column: true}", ReadParquet(include_path_column=True)),
        ("- read_json_lines: {invalid_lines: drop, encoding: utf8 bom}", ReadJsonLines(drop_invalid=True)),
    ],
)
def test_short_forms(tmp_path: Path, step: str, expected: object) -> None:
    (tmp_path / "MLTable").write_text(f"{PATHS}transformations:\n  {step}\n")
    table = read_mltable(tmp_path / "MLTable", Problems())
    assert table is not None and table.read == expected


@pytest.mark.parametrize(
    ("text", "start", "words"),
    [
        ("", "", "is empty"),
        ("- a\n", ":1:1: ", "holds a mapping"),
        ("type: table\npaths: []\n", ":1:7: type: ", "must be mltable"),
        ("transformations: []\n", ":1:1: paths: ", "is missing"),
        ("paths: a.csv\n", ":1:8: paths: ", "must be a list"),
        ("paths:\n  - a.csv\n", ":2:5: paths[0]: ", "each entry is"),
        ("paths:\n  - {file: a, folder: b}\n", ":2:5: paths[0]: ", "exactly one of"),
        ("paths:\n  - file:\n", ":2:5: paths[0]: ", "exactly one of"),
        ("paths:\n  - file: '*.csv'\n", ":2:11: paths[0].file: ", "write `pattern:`"),
        ("paths:\n  - file: azureml://x/y\n", ":2:11: paths[0].file: ", "is not the address of a datastore"),
        ("paths:\n  - file: hdfs://x/y\n", ":2:11: paths[0].file: ", "cannot be reached"),
        ("paths:\n  - folder: file://data/x\n", ":2:13: paths[0].folder: ", 'names the host "data"'),
        ("paths:\n  - file: s3://x//y/../z\n", ":2:11: paths[0].file: ", "empty part"),
        ("paths:\n  - folder: https://x/y\n", ":2:13: paths[0].folder: ", "cannot be listed"),
        ("paths:\n  - folder: s3://x/*.csv\n", ":2:13: paths[0].folder: ", "write `pattern:`"),
        ("query_source: {}\n", ":1:15: query_source: ", "databases are not supported"),
        ("path: []\n" + PATHS, ":1:1: path: ", 'Did you mean "paths"?'),
    ],
)
def test_errors_of_the_file(tmp_path: Path, text: str, start: str, words: str) -> None:
    errors, _ = problems_of(tmp_path, text)
    assert any(error.startswith(start) and words in error for error in errors), errors


@pytest.mark.parametrize(
    ("step", "key", "words"),
    [
        ("- read_delimitd", "transformations[0]", 'Did you mean "read_delimited"?'),
        ("- read_delimited: {delimeter: ;}", "read_delimited.delimeter", 'Did you mean "delimiter"?'),
        ("- read_delimited: {delimiter: '||||'}", "delimiter", "must be one character"),
        ("- read_delimited: {header: yes}", "header", "Allowed values: all_files_same_headers"),
        ("- read_delimited: {encoding: UTF8}", "encoding", 'Did you mean "utf8"?'),
        ("- read_delimited: {empty_as_string: 1}", "empty_as_string", "must be true or false"),
        ("- read_delimited: {partition_size: 0}", "partition_size", "at least 1"),
        ("- read_delimited: {path_column: File}", "path_column", "must be Path"),
        ("- read_delimited: {infer_column_types: {sample_size: 0}}", "sample_size", "at least 1"),
        (
            "- read_delimited: {infer_column_types: {column_type_overrides: [{columns: a, column_type: integer}]}}",
            "column_type_overrides[0].column_type",
            'Did you mean "int"?',
        ),
        (
            "- read_delimited: {infer_column_types: {column_type_overrides: [{columns: a, column_type: stream_info}]}}",
            "column_type",
            "are not supported",
        ),
        (
            "- read_delimited: {infer_column_types: {column_type_overrides: "
            "[{columns: a, column_type: {datetime: {formats: '%q'}}}]}}",
            "formats",
            "%q",
        ),
        ("- read_json_lines: {invalid_lines: skip}", "invalid_lines", "Allowed values: error, drop"),
        ("- read_parquet: {delimiter: x}", "read_parquet.delimiter", "is unknown here"),
        ("- read_parquet\n  - read_parquet", "transformations[1]", "keep one read_* step"),
        ("- take: -1", "take", "at least 0"),
        ("- take:", "take", "has no value"),
        ("- filter: 'a = 1'", "filter", '"= 1" (character 3) does not belong there; write "=="'),
        ("- sample: {sampler: first}", "sampler", "Allowed values: random_percent"),
        ("- take_random_sample: {probability: 2}", "probability", "from 0 to 1"),
        ("- {read_parquet: , take: 1}", "transformations[0]", "each step is one name"),
    ],
)
def test_errors_of_steps(tmp_path: Path, step: str, key: str, words: str) -> None:
    errors, _ = problems_of(tmp_path, f"{PATHS}transformations:\n  {step}\n")
    assert errors and all(error.startswith((":4:", ":5:")) for error in errors), errors
    assert any(f"{key}: " in error and words in error for error in errors), errors


def test_a_delimiter_of_two_characters_is_told(tmp_path: Path) -> None:
    errors, warnings = problems_of(tmp_path, f"{PATHS}transformations:\n  - read_delimited: {{delimiter: '\\t'}}\n")
    assert errors == [] and len(warnings) == 1 and "in double quotes" in warnings[0]
