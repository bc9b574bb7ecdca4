"""Gives the rows of a database of schema 6 or older the check values that schema 7 brings."""

from __future__ import annotations

import os
import sqlite3
import zlib

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.states import MiniBatchState
from windrow_master.files.state_files import StateFiles
from windrow_master.store.sqlite.check_values import CHECK, TALLIES, WHOLE_ROWS, row_crc, text_crc, texts_crc

CHECKS_SCHEMA = 7


def fill_checks(connection: sqlite3.Connection, files: StateFiles) -> None:
    """In the transaction of the migration. What the rows hold now is what they are taken to have held.

    Raises sqlite3.Error, OSError.
    """
    _fill_recipes(connection, files)
    connection.create_function("windrow_text_crc", 1, text_crc, deterministic=True)
    connection.create_function("windrow_texts_crc", 3, texts_crc, deterministic=True)
    connection.execute(
        "UPDATE attempt SET message_crc32 = windrow_text_crc(message), "
        "texts_crc32 = windrow_texts_crc(node_id, node_incarnation, detail)"
    )
    connection.execute("UPDATE item_outcome SET message_crc32 = windrow_text_crc(message)")
    for tally in TALLIES:
        own = tally.sum_of({name: name for name in tally.columns})
        connection.execute(f"UPDATE {tally.table} SET {CHECK} = {own}")
    for table, columns in WHOLE_ROWS.items():
        rows = connection.execute(f"SELECT {columns}, rowid FROM {table}").fetchall()
        connection.executemany(
            f"UPDATE {table} SET {CHECK} = ? WHERE rowid = ?", [(row_crc(row[:-1]), row[-1]) for row in rows]
        )


def _fill_recipes(connection: sqlite3.Connection, files: StateFiles) -> None:
    """The crc32 of the recipes of mini-batches that may still run."""
    steps = connection.execute("SELECT step_id, job_id FROM step JOIN job USING (job_key) ORDER BY step_id").fetchall()
    for step_id, job_id in steps:
        rows = connection.execute(
            "SELECT key, recipe_offset, recipe_length FROM mini_batch WHERE key >= ? AND key < ? AND recipe_length > 0 "
            f"AND state <> {int(MiniBatchState.CANCELLED)}",
            (step_id << MINI_BATCH_SHIFT, (step_id + 1) << MINI_BATCH_SHIFT),
        ).fetchall()
        if not rows:
            continue
        try:
            recipes = os.open(files.step(job_id, step_id).recipes, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            crcs = [(zlib.crc32(os.pread(recipes, length, offset)), key) for key, offset, length in rows]
        finally:
            os.close(recipes)
        connection.executemany("UPDATE mini_batch SET recipe_crc32 = ? WHERE key = ?", crcs)
