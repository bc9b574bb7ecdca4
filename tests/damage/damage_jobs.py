"""Jobs whose state is damaged, each interrupted in the middle.

A script waits while the file `gate` is there and it meets an item numbered `UNTIL` or above; so a run stops at a known
place, is killed there, and goes on when the gate has gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

# damage_trials.py runs without pytest, too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from embedded_run import EmbeddedRun, wait_until
from file_damage import bring_in_the_log

ITEMS = 48
UNTIL = 30
OPTIONS = ("--slots", "2")

FILES_SCRIPT = """\
import os, time

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name, text = os.path.basename(path), open(path).read()
        while int(text) >= {until} and os.path.exists({gate!r}):
            time.sleep(0.005)
        rows.append(name + " " + text)
    return rows
"""
TABLE_SCRIPT = """\
import os, time

def run(rows):
    while rows["n"].max() >= {until} and os.path.exists({gate!r}):
        time.sleep(0.005)
    return rows
"""
STEP = """\
  {name}:
    type: parallel
    mini_batch_size: "{size}"
    {settings}
    retry_settings: {{max_retries: 1}}
    input_data: ${{{{inputs.data}}}}
    inputs: {{data: {{type: {type}, path: {path}}}}}
    outputs: {{rows: {{type: uri_file, path: {output}}}}}
    task:
      type: run_function
      code: ./code
      entry_script: {script}.py
      program_arguments: {arguments}
      append_row_to: ${{{{outputs.rows}}}}
"""
PREPARE = """\
  prepare:
    type: command
    command: cp ${{inputs.data}}/* ${{outputs.made}}/
    inputs: {data: {type: uri_folder, path: ./data}}
    outputs: {made: {type: uri_folder}}
"""
SETTINGS = "error_threshold: 0"


class DamageJob(EmbeddedRun):
    """A folder with a job. Subclasses say what it is, and how it comes to the state that is damaged."""

    name = ""
    run_options: tuple[str, ...] = ()
    """Of the run that is interrupted, and goes on."""
    script = FILES_SCRIPT

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "", ITEMS)
        self.gate = folder / "gate"
        self.kept = folder.with_name(folder.name + ".kept")
        self.output = folder / "out.csv"
        for name in ("first", "entry"):
            until = 1 << 60 if name == "first" else UNTIL
            text = self.script.format(until=until, gate=str(self.gate))
            (folder / "code" / f"{name}.py").write_text(text)
        (folder / "job.yml").write_text("type: pipeline\n" + self.head() + "jobs:\n" + self.steps())
        self.fill()

    def head(self) -> str:
        """Settings of the pipeline."""
        return ""

    def steps(self) -> str:
        """Of the pipeline."""
        return self.step()

    def step(self, **changes: object) -> str:
        """One parallel step."""
        values = {
            "name": "score", "size": 2, "settings": SETTINGS, "type": "uri_folder", "path": "./data",
            "output": "./out.csv", "script": "entry", "arguments": "--x 1",
        }  # fmt: skip
        return STEP.format(**{**values, **changes})

    def fill(self) -> None:
        """Make the input."""

    def prepare(self) -> None:
        """What goes before the run that is interrupted."""

    def interrupt(self) -> None:
        """Start the run, and kill all of it in the middle."""
        self.gate.touch()
        self.start(*OPTIONS, *self.run_options)
        wait_until(self.is_in_the_middle, f"{self.name}: the middle of the run")
        self.kill_all()
        self.gate.unlink()

    def is_in_the_middle(self) -> bool:
        """Whether some results of the last step are committed."""
        counters = self.counters()
        return bool(counters) and counters[-1]["succeeded"] >= 5

    def build(self) -> bytes:
        """Make the state that is damaged, keep it aside, and return the output of an undisturbed run of it."""
        self.prepare()
        self.interrupt()
        self.keep()
        code, text = self.run(*OPTIONS, *self.run_options)
        assert code == 0, text
        return self.output.read_bytes()

    def keep(self) -> None:
        """Put state and output aside. Not `reserve`: 64 MB of nothing, which each start makes anew."""
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.copytree(self.state, self.kept / "state", symlinks=True, ignore=shutil.ignore_patterns("reserve"))
        if self.output.exists():
            shutil.copy2(self.output, self.kept / "out.csv")

    def restore(self, *, checkpointed: bool) -> None:
        """State and output as they were kept. `checkpointed`: with all of the database in its one file."""
        for path in (*self.folder.glob(".out.csv*"), *self.folder.glob("*failed_items.csv")):
            path.unlink()
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.copytree(self.kept / "state", self.state, symlinks=True)
        self.output.unlink(missing_ok=True)
        if (self.kept / "out.csv").exists():
            shutil.copy2(self.kept / "out.csv", self.output)
        if checkpointed:
            with contextlib.closing(sqlite3.connect(self.state / "windrow.db", isolation_level=None)) as database:
                bring_in_the_log(database)

    def files(self) -> list[Path]:
        """Every file of the state, by path. Folders of a run that vanish meanwhile are none: Path.rglob would raise."""
        found = (Path(folder, name) for folder, _, names in os.walk(self.state) for name in names)
        return sorted(path for path in found if path.is_file() and not path.is_symlink())

    def is_told(self, output: bytes, expected: bytes, text: str) -> bool:
        """Whether a run that succeeded has said why its output is another."""
        return False

    def before(self) -> bytes | None:
        """The output that is there before the run goes on."""
        path = self.kept / "out.csv"
        return path.read_bytes() if path.exists() else None


class Files(DamageJob):
    name = "files"


class Csv(DamageJob):
    """Records of several lines."""

    name = "csv"
    script = TABLE_SCRIPT

    def steps(self) -> str:
        return self.step(type="mltable", path="./table", size=120)

    def fill(self) -> None:
        table = self.folder / "table"
        table.mkdir()
        rows = "".join(f'{number},"one, {number}\nand ""two"""\n' for number in range(ITEMS))
        (table / "a.csv").write_text("n,text\n" + rows)
        (table / "MLTable").write_text(
            "paths: [{pattern: ./*.csv}]\ntransformations: [{read_delimited: {support_multi_line: true}}]\n"
        )


class Parquet(DamageJob):
    name = "parquet"
    script = TABLE_SCRIPT

    def steps(self) -> str:
        return self.step(type="mltable", path="./table", size=40)

    def fill(self) -> None:
        import pandas

        table = self.folder / "table"
        table.mkdir()
        frame = pandas.DataFrame({"n": range(ITEMS), "text": [f"row {number}" for number in range(ITEMS)]})
        frame.to_parquet(table / "a.parquet", row_group_size=4, index=False)
        (table / "MLTable").write_text("paths: [{pattern: ./*.parquet}]\ntransformations: [read_parquet]\n")


class Keys(DamageJob):
    """Groups by a column of the data."""

    name = "keys"
    script = TABLE_SCRIPT

    def steps(self) -> str:
        return self.step(type="mltable", path="./table", settings=f"{SETTINGS}\n    partition_keys: [k]").replace(
            '    mini_batch_size: "2"\n', ""
        )

    def fill(self) -> None:
        table = self.folder / "table"
        table.mkdir()
        rows = "".join(f"g{number // 2:03},{number}\n" for number in range(ITEMS))
        (table / "a.csv").write_text("k,n\n" + rows)
        (table / "MLTable").write_text("paths: [{pattern: ./*.csv}]\ntransformations: [read_delimited]\n")


class Pipeline(DamageJob):
    """A command makes files, and a parallel step reads them."""

    name = "pipeline"

    def steps(self) -> str:
        return PREPARE + self.step(path='"${{parent.jobs.prepare.outputs.made}}"')


class Reuse(Pipeline):
    """The command is reused from an earlier run, the parallel step has changed since."""

    name = "reuse"

    def head(self) -> str:
        return "settings: {force_rerun: false}\n"

    def prepare(self) -> None:
        code, text = self.run(*OPTIONS)
        assert code == 0, text
        job = self.folder / "job.yml"
        job.write_text(job.read_text().replace("--x 1", "--x 2"))

    def is_in_the_middle(self) -> bool:
        # The first two steps are those of the earlier run.
        return len(self.counters()) == 4 and super().is_in_the_middle()


class ReuseAfresh(Reuse):
    """The same, before the run that reuses has begun."""

    name = "reuse_afresh"

    def interrupt(self) -> None:
        """Nothing is under way."""


class Since(DamageJob):
    """What an earlier run has done is taken over."""

    name = "since"
    run_options = ("--since", "last")

    def is_told(self, output: bytes, expected: bytes, text: str) -> bool:
        # What cannot be taken over any more runs again, and its rows come after those that are taken over.
        same_rows = sorted(output.splitlines()) == sorted(expected.splitlines())
        return same_rows and "their rows come after those that are taken over" in text

    def prepare(self) -> None:
        data = self.folder / "data"
        for number in range(ITEMS // 2, ITEMS):
            (data / f"f{number:05d}").unlink()
        newest = max(path.stat().st_ctime for path in data.iterdir())
        wait_until(lambda: time.time() > newest + 2.1, "the files are older than a clock's tick")
        code, text = self.run(*OPTIONS)
        assert code == 0, text
        for number in range(ITEMS // 2, ITEMS):
            (data / f"f{number:05d}").write_text(str(number))

    def is_in_the_middle(self) -> bool:
        counters = self.counters()
        return len(counters) > 1 and counters[-1]["succeeded"] - counters[-1]["taken_over"] >= 2


class SinceAfresh(Since):
    """The same, before the run that takes over has begun."""

    name = "since_afresh"

    def interrupt(self) -> None:
        """Nothing is under way."""


KINDS: dict[str, Callable[[Path], DamageJob]] = {
    kind.name: kind for kind in (Files, Csv, Parquet, Keys, Pipeline, Reuse, ReuseAfresh, Since, SinceAfresh)
}
