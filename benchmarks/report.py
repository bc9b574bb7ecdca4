"""Writes measurements as Markdown tables: the same on the terminal and in README.md."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path

from benchmarks import programs
from benchmarks.measurement import Line, Table
from benchmarks.programs import ROOT
from benchmarks.rows import ROWS

README = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
DISTRIBUTIONS = ("windrow", "grpcio", "protobuf", "pandas", "pyarrow", "numpy")
PEER_DISTRIBUTIONS = ("distributed", "ray", "daft", "pandas")


def table(measured: Table) -> str:
    """A table with a heading, the aim, and a line for each contender. Ratios are to Windrow's median of the first
    metric."""
    row = measured.row
    compared = row.metrics[0]
    base = next((line.medians.get(compared.key) for line in measured.lines), None)
    with_ratio = len([line for line in measured.lines if compared.key in line.medians]) > 1
    shown = [metric for metric in row.metrics if any(metric.key in line.medians for line in measured.lines)]
    heads = [metric.title + (f", {metric.unit}" if metric.unit else "") for metric in shown]
    if with_ratio:
        heads.insert(1, "× Windrow's")
    if measured.runs > 1:
        heads.insert(2 if with_ratio else 1, "least to most")
    lines = [
        f"### {row.title}",
        "",
        f"Aim: {row.aim}. Medians of {measured.runs} runs in turn."
        if measured.runs > 1
        else f"Aim: {row.aim}. One run.",
        "",
        "| | " + " | ".join(heads) + " | |",
        "| --- |" + " ---: |" * len(heads) + " --- |",
    ]
    for line in measured.lines:
        cells = [_number(line.medians.get(metric.key), metric.decimals) for metric in shown]
        if with_ratio:
            cells.insert(1, _ratio(line, compared.key, base))
        if measured.runs > 1:
            spread = [_number(value, compared.decimals) for value in line.spread] if line.spread else []
            cells.insert(2 if with_ratio else 1, " – ".join(spread))
        lines.append(f"| {line.name} | " + " | ".join(cells) + f" | {line.note} |")
    lines += ["", f"{datetime.date.today()}, {_processor()}, commit {_commit()}, load {os.getloadavg()[0]:.1f} after."]
    return "\n".join(lines) + "\n"


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"


def _ratio(line: Line, key: str, base: float | None) -> str:
    value = line.medians.get(key)
    return "" if value is None or not base else f"{value / base:.2f}"


def machine() -> str:
    """The machine and the versions that were measured."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in DISTRIBUTIONS)
    return (
        f"Measured on {len(os.sched_getaffinity(0))} processors ({_processor()}), "
        f"{memory_gb:.0f} GiB of memory, Linux {platform.release()}, Python {platform.python_version()}, {versions}. "
        f"Peers: {_peer_versions() or 'none of the optional ones'}.\n"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    result = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or "unknown"


def _peer_versions() -> str:
    program = (
        "import importlib.metadata as m, json\nfound = {}\n"
        f"for name in {PEER_DISTRIBUTIONS!r}:\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    result = subprocess.run([programs.peers_python, "-c", program], capture_output=True, text=True, check=False)
    return ", ".join(f"{name} {version}" for name, version in json.loads(result.stdout or "{}").items())


def write(tables: list[Table]) -> None:
    """Put the tables between the marks of README.md. Tables of rows that were not measured now stay as they are."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    found = rest.split(END)[0].split("\n### ")[1:]
    sections = {section.splitlines()[0]: f"### {section.strip()}\n" for section in found}
    sections |= {measured.row.title: table(measured) for measured in tables}
    body = "\n".join([machine(), *(sections[row.title] for row in ROWS if row.title in sections)])
    README.write_text(f"{before}{BEGIN}\n{body}{END}{after}")
