"""What a replay says of rows and figures."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

    from windrow_worker.rows import Rows

ROWS_SHOWN = 5
COLUMNS_SHOWN = 200
HEAD_BYTES = 64 << 10


def duration_in_words(seconds: float) -> str:
    """`12 µs`, `3.4 ms`, `0.42 s`, `3 min 5 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def bytes_in_words(count: int) -> str:
    """`512 B`, `4.2 KB`, `1.5 GB` (powers of 1,000)."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def rows_in_words(rows: Rows, settings: Dict[str, Any]) -> Iterator[str]:
    """How many rows would be written, and the first of them as they would be. ``settings``: the configuration's."""
    if settings.get("action") != "append_row":
        yield "  Nothing of it is written: the step's output_action is summary_only."
        return
    if not rows.length:
        yield "  No row of it would be written."
        return
    count = "1 row" if rows.count == 1 else f"{rows.count:,} rows"
    yield f"  {count} would be written, {bytes_in_words(rows.length)}. The first:"
    shown = _parquet(rows) if settings.get("format") == "parquet" else _text(rows, settings)
    for line in shown:
        yield "    " + (line if len(line) <= COLUMNS_SHOWN else line[: COLUMNS_SHOWN - 1] + "…")
    if rows.count > ROWS_SHOWN:
        yield "    …"


def _head(rows: Rows, size: int) -> bytes:
    if not rows.path:
        return bytes(rows.inline[:size])
    with open(rows.path, "rb") as file:
        return file.read(size)


def _text(rows: Rows, settings: Dict[str, Any]) -> List[str]:
    encoding = (settings.get("dataframe_to_csv") or {}).get("encoding") or "utf-8"
    try:
        head = _head(rows, HEAD_BYTES).decode(encoding, "replace")
        header = rows.header.decode(encoding, "replace")
    except LookupError:
        head, header = _head(rows, HEAD_BYTES).decode("utf-8", "replace"), rows.header.decode("utf-8", "replace")
    told = settings.get("format", "text") != "text" or settings.get("dataframe_header", True)
    lines = header.splitlines()[:1] if told else []
    return lines + head.splitlines()[:ROWS_SHOWN]


def _parquet(rows: Rows) -> List[str]:
    import pyarrow

    source = pyarrow.memory_map(rows.path.decode()) if rows.path else pyarrow.BufferReader(rows.inline)
    with pyarrow.ipc.open_stream(source) as stream:
        for batch in stream:
            if batch.num_rows:
                return [
                    json.dumps(row, default=str, ensure_ascii=False) for row in batch.slice(0, ROWS_SHOWN).to_pylist()
                ]
    return []
