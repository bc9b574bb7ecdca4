"""Steps of an MLTable file: what they are read as, and mistakes in them, told with the job file's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_workspace import Workspace
from windrow.spec.naming.expressions import references
from windrow.spec.reading.problems import Problems
from windrow.spec.tables.columns import ColumnChoice
from windrow.spec.tables.filter_expression import DEPTH_MAX, TERMS_MAX, FilterSyntaxError, parse_filter
from windrow.spec.tables.mltable import read_mltable
from windrow.spec.tables.steps import SEED_DEFAULT, Sample, SelectPartitions, Skip, Take

TABLE = "inputs: {images: {type: mltable, path: ./t}}"


@pytest.mark.parametrize(
    ("steps", "line", "column", "words"),
    [
        ("- take: -1", 3, 11, "take: must be a number of rows, at least 0"),
        ("- skip:", 3, 5, "skip: has no value"),
        ("- filter: a = 1", 3, 13, '"= 1" (character 3) does not belong there; write "==" to compare'),
        ("- read_csv", 3, 5, 'there is no step "read_csv"'),
        ("- takes: 1", 3, 5, 'Did you mean "take"?'),
        ("- keep_columns: {pattern: '('}", 3, 29, '"(" is not a valid pattern'),
        ("- keep_columns: {pattern: '(?=a)b'}", 3, 29, "no look-around ((?=…), (?<!…)) and no backreferences"),
        ("- drop_columns: {pattern: '(a)\\1'}", 3, 29, "is not a valid pattern: invalid escape sequence"),
        (
            "- read_delimited\n  - convert_column_types:\n"
            "      [{columns: a, column_type: {datetime: {formats: ['%Y%d%d%d']}}}]",
            *(5, 55, '"%Y%d%d%d" has a directive more than twice'),
        ),
        ("- keep_columns: {invert: true}", 3, 19, "needs names or a `pattern`"),
        ("- take_random_sample: {seed: 1}", 3, 25, "needs a `probability`"),
        ("- take_random_sample: {probability: 2, seed: 1}", 3, 39, "from 0 to 1"),
        ("- take_random_sample: {probability: 0.5, seed: x}", 3, 50, "a whole number"),
        ("- sample: {sampler: random_percent}", 3, 13, "needs `sampler_arguments`"),
        ("- sample: {sampler: first, sampler_arguments: {probability: 0.1}}", 3, 23, "Allowed values: random_percent"),
        ("- filter: a == 1", 3, 13, 'names the column "a", but a list of files has only the column "Path"'),
        ("- keep_columns: a", 3, 19, "leaves no column"),
        ("- drop_columns: Path", 3, 19, "leaves no column"),
        ("- convert_column_types: [{columns: Path, column_type: int}]", 3, 38, "cannot become int"),
        ("- select_partitions: [0, 1]", 3, 24, "a list of files is one partition, 0"),
        ("- read_delimited\n  - take: 5\n  - select_partitions: 0", 5, 24, "comes after take"),
        ("- read_delimited\n  - select_partitions: [3, 4]\n  - select_partitions: 2", 5, 24, "leaves 2, from 0 on"),
        ("- read_delimited\n  - select_partitions: [-1]", 4, 25, "at least 0"),
    ],
)
def test_mistakes_name_their_place(workspace: Workspace, steps: str, line: int, column: int, words: str) -> None:
    workspace.write("t/t.csv", "a\n1\n")
    file = workspace.write("t/MLTable", f"paths: [{{file: ./t.csv}}]\ntransformations:\n  {steps}\n")
    problem = workspace.step_problems(TABLE)[0]
    assert (problem.file, problem.line, problem.column) == (str(file), line, column), problem
    assert words in str(problem)


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ("traits: {index_columns: [a, a]}", "names a more than once"),
        ("traits: {timestamp_colum: a}", 'Did you mean "timestamp_column"?'),
        ("metadata: 3", "must be a mapping"),
        ("metadata: {windrow: plain}", 'must be plain_files or version_1, not "plain"'),
    ],
)
def test_traits_and_metadata_are_checked(tmp_path: Path, notes: str, words: str) -> None:
    (tmp_path / "MLTable").write_text(f"paths: []\n{notes}\n")
    problems = Problems()
    assert read_mltable(tmp_path / "MLTable", problems) is None
    assert words in str(problems.errors[0])


def test_steps_before_and_after_the_one_that_reads(tmp_path: Path) -> None:
    (tmp_path / "MLTable").write_text(
        """
paths: [{folder: .}]
transformations:
  - skip: 1
  - read_json_lines
  - take_random_sample: {probability: 0.5}
  - sample: {sampler: random_percent, sampler_arguments: {probability: 1, probability_lower_bound: 0.25, seed: 9}}
  - keep_columns: {pattern: "^a", invert: true, ignore_case: true}
  - select_partitions: [2, 0, 2]
traits: {index_columns: a, timestamp_column: t}
metadata: {anything: [1]}
"""
    )
    problems = Problems()
    table = read_mltable(tmp_path / "MLTable", problems)
    assert table is not None, problems.errors
    assert [type(step) for step in table.before] == [Skip]
    first, second, kept, selected = table.after
    assert isinstance(first, Sample) and first[:3] == (0, 0.5, SEED_DEFAULT)
    assert isinstance(second, Sample) and second[:3] == (0.25, 1, 9)
    assert kept[0] == ColumnChoice((), "^a", True)
    assert isinstance(selected, SelectPartitions) and selected.numbers == (0, 2)
    texts = [str(one) for one in problems.warnings]
    assert (len(texts) == 2 and "has no seed; 0 is taken" in texts[1] and "(?i)" in texts[0]) or "(?i)" in texts[1]


def test_no_pattern_takes_for_ever(tmp_path: Path) -> None:
    """Each of these has more ways to fail than there is time for, where they are tried one after the other."""
    for pattern in ("(a+)+$", "(a|aa)+$", "(.*a){30}b"):
        assert ColumnChoice((), pattern).chosen(["a" * 200 + "!", "x" + "a" * 9]) == ["x" + "a" * 9] * (
            "b" not in pattern
        )
    assert ColumnChoice((), "ß$", True).chosen(["aß", "ß", "\udcff", "b"]) == ["\udcff", "b"]
    text = "${{" + " " * 200_000
    with pytest.raises(ValueError, match="not a well-formed expression"):
        references(text * 2)


def test_a_column_that_is_named_twice_is_meant_once(tmp_path: Path) -> None:
    (tmp_path / "MLTable").write_text(
        "paths: [{folder: .}]\ntransformations: [read_delimited, {keep_columns: [b, a, b]}]\n"
    )
    problems = Problems()
    table = read_mltable(tmp_path / "MLTable", problems)
    assert table is not None and table.after[0][0].chosen(["a", "b", "c"]) == ["a", "b"]
    (warning,) = problems.warnings
    assert "names b more than once" in warning.message


def test_all_steps_of_a_list_of_files_stand_before(tmp_path: Path) -> None:
    (tmp_path / "MLTable").write_text("paths: [{folder: .}]\ntransformations: [{take: 3}, {skip: 1}]\n")
    table = read_mltable(tmp_path / "MLTable", Problems())
    assert table is not None and [type(step) for step in table.before] == [Take, Skip] and table.after == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("a >", "it ends where a column, number or text should be"),
        ("a && b", '"&& b" (character 3) does not belong there; write "and"'),
        ("a AND b", 'write "and"'),
        ("a in (1, 2)", 'there is no "in"'),
        ("!a", 'write "not"'),
        ("a > .5", '".5" (character 5)'),
        ("c == ''", "text must not be empty"),
        ("c == 'x", "ends with the quote it began with"),
        ("len(c) > 1", "is not a function; there are col, datetime and startswith"),
        ("c.endswith('x')", 'the only one is "startswith"'),
        ("(a > 1", 'is where ")" should be'),
        ("startswith(c)", 'is where "," should be'),
        ("a b", 'an operator such as "and"'),
        ("not", "it ends where"),
        ("a and or b", 'missing before "or b"'),
        ("e > datetime(2020, 13)", "month must be in 1..12"),
        ("e > datetime('2020')", "takes whole numbers"),
        ("e > datetime()", "takes whole numbers"),
        ("a > 9223372036854775808", "larger than any whole number of 64 bits"),
        ("a > " + "9" * 5000, "larger than any whole number of 64 bits"),
        ("a > 1e999", "larger than any decimal of 64 bits"),
        ("é > 1", "does not belong there"),
        ("(" * (DEPTH_MAX + 1) + "a", "nested deeper"),
        (" or ".join(["a"] * TERMS_MAX), "Make it shorter"),
    ],
)
def test_filters_that_are_none(text: str, words: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(text)
    assert words in str(caught.value)


def test_filters_are_parsed_with_their_columns() -> None:
    found = parse_filter("col('x y') > 3 and\n not (b == \"it's\" or col(b).startswith('\\'q\\\\')) ")
    assert found.columns == ("x y", "b")
    assert found.tree == [
        "and",
        [">", ["column", "x y"], ["value", 3]],
        ["not", ["or", ["==", ["column", "b"], ["value", "it's"]], ["startswith", ["column", "b"], ["value", "'q\\"]]]],
    ]
    assert parse_filter("datetime(2020) < e").tree == ["<", ["datetime", "2020-01-01T00:00:00"], ["column", "e"]]
