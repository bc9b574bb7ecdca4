"""How a delimited file is to be read, from what is in it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow.spec.one_line.text_tables import SAMPLE_BYTES, HowRead, how_read

PLAIN = HowRead()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,b\n1,2\n", PLAIN),
        ("a;b\n1;2\n", HowRead(";")),
        ("a;b;c\n1;2,5;3\n", HowRead(";")),
        ("a\tb\n1\t2\n", HowRead("\t")),
        ("a|b\n", HowRead("|")),
        ("\ufeffa;b\n1;2\n", HowRead(";")),
        # The other sign is in a value, or in one line alone.
        ("name\nfoo;bar\n", PLAIN),
        ("a;b,c\n1,2\n", PLAIN),
        ("a;b\nno more columns\n", PLAIN),
        ('"a;b"\n1\n', PLAIN),
        ('"a,b";c\n1;2\n', HowRead(";")),
        ('a,b\n1,"x\ny"\n2,z\n', HowRead(multi_line=True)),
        ('a,b\n1,z\n2,"x\ny"', HowRead(multi_line=True)),
        ('a;b\n1;"x\n\ny"\n', HowRead(";", multi_line=True)),
        # Quotes that are values.
        ('a,b\n1,5" pipe\n2,6" pipe\n', PLAIN),
        ('a,b\n1,"x\n2,y\n', PLAIN),
        ("a,b\n1,ü\n".encode("latin-1"), HowRead(encoding="latin1")),
        (b"\xff\xfe" + "a;b\n1;ü\n".encode("utf-16-le"), HowRead(";", "utf16")),
        (("a,b\n" + "1,2\n" * SAMPLE_BYTES).encode() + b"\xfc,1\n", HowRead(encoding="latin1")),
        # A character, and a value, that the end of the sample cuts.
        ("ü" * SAMPLE_BYTES, PLAIN),
        ('a,b\n1,"x\ny"\n' + '2,"' + "z" * SAMPLE_BYTES + '"\n', HowRead(multi_line=True)),
        ("", PLAIN),
    ],
)
def test_what_a_file_shows(tmp_path: Path, content: str | bytes, expected: HowRead) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert how_read([str(file)], ",") == expected


def test_several_files_are_read_alike(tmp_path: Path) -> None:
    for name, text in {"a": "a;b\n1;2\n", "b": 'a;b\n1;"x\ny"\n', "c": "a;b\n1;ü\n"}.items():
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    files = [str(tmp_path / name) for name in ("a", "b", "c", "nothing")]
    assert how_read(files, ",") == HowRead(";", "latin1", True)
    assert how_read([], ",") == PLAIN
    assert HowRead().settings("\t") == {"delimiter": "\t"} and HowRead().settings(",") == {}


@given(
    st.lists(st.lists(st.text('ab1 ;,|\n"', max_size=6), min_size=3, max_size=3), min_size=2, max_size=5),
    st.sampled_from(",;|"),
)
def test_what_pythons_writer_writes_is_known_by_its_header(rows: list[list[str]], delimiter: str) -> None:
    import tempfile

    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([["one", "two", "three"], ["1", "2", "3"], *rows])
    with tempfile.NamedTemporaryFile("w", newline="", encoding="utf-8") as file:
        file.write(text.getvalue())
        file.flush()
        found = how_read([file.name], ",")
    assert found == HowRead(
        "" if delimiter == "," else delimiter, "", any("\n" in value for row in rows for value in row)
    )
