"""`DataFrame.to_csv` by Arrow: the same bytes, several times faster, or nothing.

pandas turns every value into a Python object and passes it to the `csv` module. Here, whole columns become text. If the
text might differ (types, settings or values that are not handled below), the chunk is declined, and pandas writes it.
The first chunk of each combination of types is compared with the output of pandas. So if a version of pandas, numpy or
Arrow writes another text, that is noticed at once, and pandas writes everything from then on.

The rules below were found by comparison, and tests hold them against pandas itself:

1. float64: Arrow's cast writes the shortest digits, as `repr` does, with other rules for exponents: equal for
   1e-4 <= abs(x) < 1e10, except whole numbers, which lack ".0".
2. Dates: pandas decides for each column and chunk: only the date if every time is midnight, or else the fewest of 0, 3,
   6 or 9 digits that show every fraction.
3. `csv` with minimal quoting quotes a text that contains one of a few characters, and doubles quotes inside. An empty
   field that is alone in its row is quoted.
"""

from __future__ import annotations

import csv
import io

import numpy
import pandas
import pyarrow
import pyarrow.compute as compute
from pyarrow import csv as arrow_csv

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

_KNOWN_ARGUMENTS = frozenset(("chunksize", "index", "na_rep", "sep"))

_SEPARATORS = frozenset(" ,;\t|")
"""None of these occurs in a number, or in a date without a time."""

_COMPARED_ROWS = 100

_UNITS = (("s", 1), ("ms", 1000), ("us", 1000000), ("ns", 1000000000))


class _Declined(Exception):
    """The chunk is declined: pandas must write it."""


class FastCsv:
    """Writes chunks of DataFrames. Made by `for_arguments`."""

    def __init__(self, sep: str, na_rep: str, index: bool) -> None:
        self._sep = sep
        self._na_rep = na_rep
        self._index = index
        self._special = _quoted_letters(sep)
        self._agrees: Dict[Tuple[Any, ...], bool] = {}

    @staticmethod
    def for_arguments(arguments: Dict[str, Any]) -> Optional[FastCsv]:
        """A FastCsv; None if the arguments set more than separator, index and the text of missing values."""
        if not set(arguments) <= _KNOWN_ARGUMENTS:
            return None
        sep, na_rep, index = arguments["sep"], arguments.get("na_rep", ""), arguments["index"]
        if sep not in _SEPARATORS or not isinstance(na_rep, str) or not isinstance(index, bool):
            return None
        if any(letter in na_rep for letter in sep + '"\r\n') or len(na_rep) > 16 or not na_rep.isascii():
            return None
        if int(pandas.__version__.split(".")[0]) < 2:
            return None
        return FastCsv(sep, na_rep, index)

    def render(self, chunk: Any) -> Optional[bytes]:
        """The chunk's rows as pandas would write them; None if pandas has to write them."""
        dtypes = tuple(map(str, chunk.dtypes))
        signature = (dtypes, str(chunk.index.dtype)) if self._index else dtypes
        agrees = self._agrees.get(signature)
        if agrees is False or len(chunk) == 0:
            return None
        try:
            if agrees is None:
                sample = chunk.iloc[:_COMPARED_ROWS]
                agrees = self._render(sample) == sample.to_csv(
                    None, header=False, sep=self._sep, na_rep=self._na_rep, index=self._index
                ).encode("utf-8")
                self._agrees[signature] = agrees
                if not agrees:
                    return None
            return self._render(chunk)
        except (_Declined, pyarrow.ArrowException, UnicodeError, ValueError, TypeError, OverflowError, KeyError):
            return None

    def _render(self, chunk: Any) -> bytes:
        columns = [chunk.iloc[:, at] for at in range(chunk.shape[1])]
        if not columns:
            raise _Declined
        if self._index:
            index = chunk.index
            if index.nlevels != 1 or index.dtype.kind not in "iu":
                raise _Declined
            columns.insert(0, pandas.Series(index.to_numpy()))
        alone = len(columns) == 1
        texts: List[Any] = []
        plain = True
        for column in columns:
            text, quoted = self._column(column)
            if text.null_count:
                text = compute.fill_null(text, self._na_rep)
            if alone:
                empty = compute.equal(compute.binary_length(text), 0)
                if compute.any(empty).as_py():
                    text, quoted = compute.if_else(empty, '""', text), True
            plain = plain and not quoted
            texts.append(text)
        if plain:
            return self._join_plain(texts)
        return _join(texts, self._sep)

    def _join_plain(self, texts: List[Any]) -> bytes:
        """Writes rows of fields without special characters."""
        table = pyarrow.Table.from_arrays(texts, names=[str(at) for at in range(len(texts))])
        options = arrow_csv.WriteOptions(
            include_header=False, quoting_style="none", delimiter=self._sep, batch_size=16384
        )
        target = pyarrow.BufferOutputStream()
        arrow_csv.write_csv(table, target, options)
        return bytes(target.getvalue())

    def _column(self, column: Any) -> Tuple[Any, bool]:
        """A column's fields as an Arrow string array (nulls stay), and whether any of them is quoted."""
        dtype = column.dtype
        kind = getattr(dtype, "kind", "")
        if isinstance(dtype, numpy.dtype):
            if kind == "f":
                return _floats(column.to_numpy()), False
            if kind in "iu":
                return compute.cast(pyarrow.array(column.to_numpy()), pyarrow.string()), False
            if kind == "b":
                return compute.if_else(pyarrow.array(column.to_numpy()), "True", "False"), False
            if kind == "M":
                text, has_blank = _dates(column.to_numpy())
                if has_blank and self._sep == " ":
                    return compute.binary_join_element_wise('"', text, '"', ""), True
                return text, False
            if kind == "O":
                return self._texts(column)
            raise _Declined
        if isinstance(dtype, pandas.StringDtype):
            return self._texts(column)
        if isinstance(dtype, pandas.CategoricalDtype):
            return self._categories(column)
        raise _Declined

    def _texts(self, column: Any) -> Tuple[Any, bool]:
        """Texts and missing values; any other object declines."""
        if not isinstance(column.dtype, pandas.StringDtype) and pandas.api.types.infer_dtype(
            column, skipna=True
        ) not in (
            "string",
            "empty",
        ):
            raise _Declined
        array = pyarrow.array(column, type=pyarrow.string(), from_pandas=True)
        if isinstance(array, pyarrow.ChunkedArray):
            array = array.combine_chunks()
        if not isinstance(array, pyarrow.StringArray):
            raise _Declined
        return self._quote(array)

    def _categories(self, column: Any) -> Tuple[Any, bool]:
        """Categories that are texts: each is checked only once."""
        values = column.cat.categories
        if len(values) == 0:
            raise _Declined
        categories, quoted = self._texts(values.to_series())
        codes = pyarrow.array(column.cat.codes.to_numpy())
        codes = compute.if_else(compute.less(codes, 0), None, codes)
        return categories.take(codes), quoted

    def _quote(self, array: Any) -> Tuple[Any, bool]:
        """The texts as `csv` writes them."""
        # The bytes of all texts are contiguous: one search shows that nothing is special.
        everything = _bytes_of(array)
        found = [letter for letter in self._special if letter.encode() in everything]
        if not found:
            return array, False
        special = compute.match_substring(array, found[0])
        for letter in found[1:]:
            special = compute.or_(special, compute.match_substring(array, letter))
        doubled = compute.replace_substring(array, '"', '""') if '"' in found else array
        quoted = compute.binary_join_element_wise('"', doubled, '"', "")
        return compute.if_else(compute.fill_null(special, False), quoted, array), True


def _quoted_letters(sep: str) -> List[str]:
    """The characters for which `csv` quotes a field. They depend on the version of Python, so `csv` is asked."""
    found = []
    for code in range(128):
        target = io.StringIO()
        csv.writer(target, delimiter=sep, lineterminator="\n").writerow(("a" + chr(code) + "b", "x"))
        if target.getvalue().startswith('"'):
            found.append(chr(code))
    return found


def _join(texts: List[Any], sep: str) -> bytes:
    """Writes rows of fields that are already quoted where necessary."""
    last = compute.binary_join_element_wise(texts[-1], "\n", "")
    lines = compute.binary_join_element_wise(*texts[:-1], last, sep) if len(texts) > 1 else last
    if isinstance(lines, pyarrow.ChunkedArray):
        lines = lines.combine_chunks()
    return _bytes_of(lines)


def _bytes_of(array: Any) -> bytes:
    """All texts of a string array, joined."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return b""
    bounds = numpy.frombuffer(offsets, dtype=numpy.int32)
    return bytes(memoryview(data)[bounds[array.offset] : bounds[array.offset + len(array)]])


def _floats(values: Any) -> Any:
    """Floats as text, NaN as null."""
    if values.dtype != numpy.float64:
        # Their text depends on the version of numpy; pandas uses numpy's, and so does this.
        missing = numpy.isnan(values)
        return pyarrow.array(values.astype(str).astype(object), pyarrow.string(), mask=missing)
    numbers = pyarrow.array(values, from_pandas=True)
    text = compute.cast(numbers, pyarrow.string())
    size = numpy.abs(values)
    with numpy.errstate(invalid="ignore"):
        whole = (numpy.floor(values) == values) & (size < 1e10)
        other = ((size >= 1e10) | ((size < 1e-4) & (size > 0))) & numpy.isfinite(values)
    if whole.any():
        text = compute.if_else(pyarrow.array(whole), compute.binary_join_element_wise(text, ".0", ""), text)
    if other.any():
        exact = pyarrow.array(list(map(repr, values[other].tolist())), pyarrow.string())
        text = compute.replace_with_mask(text, pyarrow.array(other), exact)
    return text


def _dates(values: Any) -> Tuple[Any, bool]:
    """Dates without time zone as text, NaT as null, in the form that pandas chooses for the column.

    The second value says whether they contain a time.
    """
    unit = numpy.datetime_data(values.dtype)[0]
    known = dict(_UNITS)
    if unit not in known:
        raise _Declined
    present = values[~numpy.isnat(values)]
    if not len(present):
        return pyarrow.nulls(len(values), pyarrow.string()), False
    if present.min() < numpy.datetime64("1000-01-01") or present.max() >= numpy.datetime64("9999-12-31"):
        raise _Declined
    ticks = present.view("int64")
    scale = known[unit]
    dates = pyarrow.array(values)
    if not (ticks % (86400 * scale)).any():
        return compute.cast(compute.cast(dates, pyarrow.date32()), pyarrow.string()), False
    for name, coarse in _UNITS:
        if coarse <= scale and not (ticks % (scale // coarse)).any():
            return compute.cast(compute.cast(dates, pyarrow.timestamp(name)), pyarrow.string()), True
    raise _Declined
