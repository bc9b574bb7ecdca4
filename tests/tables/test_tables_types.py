"""Types inferred from a sample, dates, and values of the pinned types."""

from __future__ import annotations

import pandas
import pytest
from windrow_worker.tables.columns import Column, convert, infer
from windrow_worker.tables.dates import forms_of, parser


@pytest.mark.parametrize(
    ("sample", "mltable", "plain"),
    [
        (["0", "1"], "bool", "int"),
        (["1"], "bool", "int"),
        (["01", "00"], "bool", "int"),
        (["true", "false", None], "bool", "bool"),
        (["Yes", "N"], "bool", "text"),
        (["yes"], "text", "text"),
        (["t", "1"], "bool", "text"),
        (["1", "2", None], "int", "int"),
        ([" -7 ", "+007"], "int", "int"),
        (["9223372036854775808"], "float", "text"),
        (["9223372036854775808", "0.5"], "float", "float"),
        (["1", ".5", "1.", "2e3", "NaN", "-Infinity"], "float", "float"),
        (["0x10"], "text", "text"),
        (["1,5"], "text", "text"),
        ([None, None], "text", "text"),
        (["", "1"], "text", "text"),
        (["NA"], "text", "text"),
        (["20200102"], "int", "int"),
        (["2020-01"], "text", "text"),
        (["2020-1-2", "2020/01/02"], "datetime", "datetime"),
        (["2020-01-02T03:04:05.5+02:00"], "datetime", "datetime"),
        (["2020-01-02 03:04"], "text", "text"),
        (["2020-02-30"], "text", "text"),
        ([" 2020-01-31"], "datetime", "datetime"),
        (["2020-01-31", "2020-01-31 "], "text", "text"),
        (["5-Jan-2020", "6-feb-20"], "datetime", "datetime"),
        (["13/01/2020", "01/02/2020"], "datetime", "datetime"),
        (["13/01/2020", "01/13/2020"], "text", "text"),
        # Without a fourth digit, a year comes first if it can, but in plain files last.
        (["1/2/03"], "datetime", "datetime"),
        (["13/2/03"], "datetime", "text"),
        (["1/2/70"], "text", "datetime"),
        (["13/2/70"], "datetime", "text"),
        (["03-01-02T03:04:05"], "datetime", "text"),
        (["2020/1/2 3:4:5", "2020-01-02T23:59:60"], "datetime", "datetime"),
        (["2020-01-02T23:59:61"], "text", "text"),
    ],
)
def test_inference(sample: list[str | None], mltable: str, plain: str) -> None:
    assert infer("x", sample, plain=False)[0].type == mltable
    assert infer("x", sample, plain=True)[0].type == plain


def test_a_number_of_thousands_of_digits_in_the_sample_stops_nothing() -> None:
    """Python refuses to read integers of more than 4,300 digits."""
    assert infer("x", ["0" * 5000, None, "7"], plain=True)[0] == Column("x", "int", exact=True, as_floats=True)


def test_undecidable_dates_stay_text_and_are_told() -> None:
    column, undecidable = infer("x", ["01/02/2020", "3/4/2021"], plain=False)
    assert column.type == "text" and undecidable


@pytest.mark.parametrize(
    ("sample", "forms"),
    [
        (["01/02/2020", "3/14/2021"], ["M/d/yyyy"]),
        (["2020-1-2", "2020/01/02"], ["yyyy-M-d", "yyyy/M/d"]),
        (["2020-01-02T03:04:05Z", "2020-01-02 03:04:05 UTC"], ["yyyy-M-dTHH:mm:ssz", "yyyy-M-d HH:mm:ss UTC"]),
        # Each kind tells the order for itself, and for those that do not.
        (["1/31/2020", "31-1-2020 3:04"], ["M/d/yyyy", "d-M-yyyy H:mm"]),
        (["31-1-2020", "2/3/2020 3:04:05 PM"], ["d-M-yyyy", "d/M/yyyy H:mm:ss a"]),
        (["1/31/2020", "31/1/2020"], []),
        (["1/31/2020", "31-1-2020", "2/3/2020 3:04"], []),
        (["5-Jan-2020", "6-feb-20"], ["d-MMM-yyyy", "d-MMM-yy"]),
        (["1/2/03", "13/2/03 5:06:07"], ["y/M/d", "y/M/d HH:mm:ss"]),
        (["2/13/03", "1/2/03"], ["M/d/yy"]),
        (["1/2/03", "31-12-99", "31/12/99"], ["d/M/yy", "d-M-yy"]),
        (["2/13/03", "31/12/99"], []),
        (["1/2/70"], []),
    ],
)
def test_forms_of_dates(sample: list[str], forms: list[str]) -> None:
    assert forms_of(sample)[0] == tuple(forms)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("d/M/yyyy", "01/02/2020", "2020-02-01"),
        ("M-d-yyyy H:mm a", "01-02-2020 1:05 PM", "2020-01-02 13:05"),
        ("M/d/yy", "01/02/69", "2069-01-02"),
        ("d/M/yy", "31/12/99", "1999-12-31"),
        ("yyyy-M-dTHH:mm:ss", "2020-12-31T23:59:60", "2021-01-01"),
        ("yyyy-M-d HH:mm:ss UTC", "2020-01-02 03:04:05 UTC", "2020-01-02 03:04:05"),
        ("yyyy-M-dTHH:mm:ssz", "2020-01-02T03:04:05+02:30", "2020-01-02 00:34:05"),
        ("yyyy-M-dTHH:mm:ss.f", "2020-01-02T03:04:05.123456789123", "2020-01-02 03:04:05.123456789"),
        ("yyyy-M-dTHH:mm:ss.f", "2020-01-02T03:04:05", "2020-01-02 03:04:05"),
        ("yyyy-M-d HH:mm:ss", "2020-01-02  3:04:05", "2020-01-02 03:04:05"),
        ("yyyy-M-d HH:mm:ssz", "2020-01-0203:04:05 Z", "2020-01-02 03:04:05"),
        ("M/d/yyyy H:mm a", "1/2/2020  3:04PM", "2020-01-02 15:04"),
        ("yyyy-M-d", "2020-01-02 ", None),
        ("yyyy-M-d HH:mm:ss", "2020-01-02 03:04:05 ", None),
        ("yyyy-M-d", "01/02/2020", None),
        ("yyyy-M-d", "2020-01-02 03:04:05", None),
        ("yyyy-M-d HH:mm:ss", "2020-01-02T03:04:05", None),
        ("M/d/yyyy", "1/2/20", None),
        ("d-MMM-yyyy", "31-Apr-2020", None),
    ],
)
def test_dates(form: str, text: str, expected: str | None) -> None:
    """What has another form than the sample is no date (docs/reference/azure-ml/mltable.md#types)."""
    found = parser([form], ())(f" {text}")
    assert found == (None if expected is None else pandas.Timestamp(expected).value)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("%d.%m.%Y", "3.4.2021", "2021-04-03"),
        ("%Y-%m-%dT%H:%M:%S.%f%z", "2021-04-03T01:02:03.5+0100", "2021-04-03 00:02:03.5"),
        ("%Y-%m-%d %H:%M:%S.%f", "2021-04-03 01:02:03", "2021-04-03 01:02:03"),
        ("%b %d, %y %I:%M %p", "jul 04, 99 12:05 am", "1999-07-04 00:05"),
        ("%B %Y", "AUGUST 2020", "2020-08-01"),
        ("%Y%m%d", "20210403x", None),
        ("%Y (%m)", "2021 (4)", "2021-04-01"),
        ("%Y %f%f", "2021 12345678901", "2021-01-01 00:00:00.123456789"),
        ("%Y .%f .%f", "2021.5.25", "2021-01-01 00:00:00.5"),
        ("%Y .%f .%f %m", "2021" + " " * 100_000 + "4", "2021-04-01"),
        ("%Y .%f .%f %m", "2021" + " " * 100_000 + "x", None),
    ],
)
def test_date_formats(form: str, text: str, expected: str | None) -> None:
    assert parser((), [form])(text) == (None if expected is None else pandas.Timestamp(expected).value)


@pytest.mark.parametrize(
    ("column", "text", "expected", "fits"),
    [
        (Column("x", "int"), " 7 ", 7, True),
        (Column("x", "int"), "-1.9", -1, False),
        (Column("x", "int"), "1e3", 1000, False),
        (Column("x", "int"), "nan", 0, False),
        (Column("x", "int"), "1e300", 2**63 - 1, False),
        (Column("x", "int"), "x", None, False),
        (Column("x", "int", exact=True), " 7 ", 7, True),
        (Column("x", "int", exact=True), "12.0", 12, True),
        (Column("x", "int", exact=True), "-1.9", None, False),
        (Column("x", "int", exact=True), "nan", None, False),
        (Column("x", "int", exact=True), "9007199254740993.0", None, False),
        (Column("x", "int", exact=True), "9223372036854775808", None, False),
        (Column("x", "int", exact=True), "1e300", None, False),
        (Column("x", "int"), "", None, True),
        (Column("x", "float"), "1_0", None, False),
        (Column("x", "bool", true_words=("1",), false_words=("0",)), " 1 ", True, True),
        (Column("x", "bool", true_words=("1",), false_words=("0",)), "2", None, False),
        (Column("x", "bool", true_words=("j",), false_words=("n",), mismatch=False), "q", False, True),
        (Column("x", "datetime", dates=("yyyy-M-d",)), "1492-10-12", None, False),
    ],
)
def test_values(column: Column, text: str, expected: object, fits: bool) -> None:
    converted = convert(column, [None, text])
    assert converted.values == [None, expected] and converted.misfits == (not fits)
    assert Column.from_json(column.to_json()) == column
