"""`python -m benchmarks [ROW…]` measures rows and prints tables. `--write` puts them into benchmarks/README.md."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from benchmarks import programs, report
from benchmarks.measurement import Table, measure
from benchmarks.rows import ROWS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures Windrow beside its peers: all rows, or those that are named.",
        epilog="Example: python -m benchmarks noop cold_start --runs 3",
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(row.key for row in ROWS))
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender, in turn (default 5)")
    parser.add_argument("--write", action="store_true", help="write the tables into benchmarks/README.md")
    parser.add_argument("--scratch", type=Path, help="folder for inputs and outputs (default: a temporary one)")
    parser.add_argument(
        "--peers-python", default=sys.executable,
        help="interpreter in which Ray, Dask, Daft are installed (default: this one; see the extra `bench`)",
    )  # fmt: skip
    parser.add_argument("--no-peers", action="store_true", help="measure only Windrow, while working on it")
    options = parser.parse_args()
    unknown = set(options.rows) - {row.key for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}. Rows: {', '.join(row.key for row in ROWS)}")
    programs.peers_python = options.peers_python

    tables: list[Table] = []
    failed = []
    print(report.machine())
    scratch = Path(tempfile.mkdtemp(prefix="windrow-bench-", dir=options.scratch))
    try:
        for row in ROWS:
            if options.rows and row.key not in options.rows:
                continue
            try:
                measured = measure(row, options.runs, scratch, peers=not options.no_peers)
            except Exception:
                traceback.print_exc()
                failed.append(row.key)
                continue
            tables.append(measured)
            print(report.table(measured), flush=True)
    finally:
        shutil.rmtree(scratch)
    if options.write:
        report.write(tables)
        print(f"written into {report.README}")
    if failed:
        print(f"not measured, because Windrow or the input failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
