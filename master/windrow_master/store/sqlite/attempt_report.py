"""The attempts of a step as report lines and sums, made by SQLite a page at a time.

Steps often have a million attempts. A line that SQLite assembles costs a third of one that goes as a Python tuple
through `csv.writer` (measured: 2.8 µs and over 8.3 µs), and the interpreter's lock is free meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.states import AttemptState, Cause, Phase
from windrow_master.core.statuses import category_of, status_of
from windrow_master.store.protocol import MESSAGE_CHARS_MAX
from windrow_master.store.sqlite.check_values import ATTEMPTS, LEASED_BY, MINI_BATCHES


def lines_query(folders: Mapping[tuple[str, str], str]) -> tuple[str, list[object]]:
    """The query for a page of lines, and those of its values that come before (step, after, rows).

    `folders`: (node id, incarnation) -> the name of the node, if that is not its id. The row of the result: the lines,
    the last lease id, the number of lines, and the first lease id of a damaged row.
    """
    values: list[object] = []
    whens = ""
    for (node_id, incarnation), name in folders.items():
        whens += "WHEN a.node_id = ? AND a.node_incarnation = ? THEN ? "
        values += [node_id, incarnation, name]
    node = f"CASE {whens}ELSE a.node_id END" if whens else "a.node_id"
    done = int(AttemptState.SUCCEEDED)
    ok = f"CASE WHEN a.state = {done} THEN min(a.result_count, a.item_count) ELSE 0 END"
    picked = (
        "1 + (SELECT count(*) FROM attempt AS b WHERE b.step_id = a.step_id AND b.mini_batch = a.mini_batch "
        f"AND b.state <> {done} AND b.lease_id <> a.lease_id "
        f"AND ({LEASED_BY.format('b')}, b.lease_id) < ({LEASED_BY.format('a')}, a.lease_id))"
    )
    rows = f"""
        SELECT a.lease_id, a.mini_batch, a.process_number, a.start_unix_us, a.item_count, a.elapsed_us, a.cpu_us,
               a.run_us, a.state, a.cause, a.message, a.generation, m.item_first, m.item_count AS planned,
               a.phase = {int(Phase.FETCHING)} OR a.process_number < 0 AS of_none, {ok} AS ok, {picked} AS picked,
               {node} AS node,
               {ATTEMPTS.holds("a")} AND {MINI_BATCHES.holds("m")} AS held,
               CASE WHEN a.state = {done} THEN 'RUN_DONE' ELSE {_choice(status_of)} END AS status,
               CASE WHEN a.state = {done} THEN '' ELSE {_choice(_category)} END AS category
        FROM attempt AS a INDEXED BY attempt_by_step
        LEFT JOIN mini_batch AS m ON m.key = a.step_id << {MINI_BATCH_SHIFT} | a.mini_batch
        WHERE a.step_id = ? AND a.lease_id > ? ORDER BY a.lease_id LIMIT ?"""
    line = f"""
        printf('%d,%d,%s,%s.%06dZ,%d,%d,%d,%.6f,%.6f,%.6f,%s,%s,%s,"{{""id"":%d,""dequeue_count"":%d,'
               || '""item_first"":%d,""item_count"":%d,""generation"":%d}}",%s' || char(13, 10),
               mini_batch, picked, CASE WHEN of_none THEN '' ELSE printf('process%03d', process_number) END,
               strftime('%Y-%m-%dT%H:%M:%S', start_unix_us / 1000000, 'unixepoch'), start_unix_us % 1000000,
               item_count, ok, item_count - ok, elapsed_us / 1e6, cpu_us / 1e6, run_us / 1e6, status, category,
               CASE WHEN message = '' THEN '' ELSE
               '"' || {_as_text("message")} || replace(substr(message, 1, {MESSAGE_CHARS_MAX}), '"', '""') || '"' END,
               mini_batch, picked, item_first, planned, generation, {_as_text("node")} || node)"""
    return (
        f"SELECT group_concat({line}, ''), max(lease_id), count(*), "
        f"min(CASE WHEN held THEN NULL ELSE lease_id END) FROM ({rows})",
        values,
    )


def _as_text(column: str) -> str:
    """The SQL expression for what stands before a text that begins like a formula (`spreadsheet_cells.as_text`)."""
    # No run needs it before a step has ended.
    from windrow.common.spreadsheet_cells import FORMULA_STARTS, MARK

    starts = " || ".join(f"char({ord(one)})" for one in FORMULA_STARTS)
    begin = f"substr(ltrim({column}, '{MARK * 2}'), 1, 1)"
    return f"CASE WHEN {begin} <> '' AND instr({starts}, {begin}) THEN '{MARK * 2}' ELSE '' END"


def _category(state: int, cause: int, phase: int) -> str:
    return category_of(cause, phase)


def _choice(told: object) -> str:
    """The SQL expression for what a function of the core says of an attempt that has not succeeded."""
    assert callable(told)
    whens = []
    for cause in Cause:
        plain = told(AttemptState.FAILED, cause, Phase.UNKNOWN)
        whens += [
            f"WHEN a.cause = {int(cause)} AND a.phase = {int(phase)} THEN '{word}'"
            for phase in Phase
            if (word := told(AttemptState.FAILED, cause, phase)) != plain
        ]
        whens.append(f"WHEN a.cause = {int(cause)} THEN '{plain}'")
    running = told(AttemptState.RUNNING, Cause.NONE, Phase.UNKNOWN)
    return f"CASE WHEN a.state = {int(AttemptState.RUNNING)} THEN '{running}' {' '.join(whens)} ELSE '' END"


def _total(column: str) -> str:
    """The sum of a column, which `sum()` refuses beyond 63 bits."""
    return f"CAST(total({column}) AS INTEGER)"


TOTALS_QUERY = f"""
    SELECT node_id, node_incarnation, CASE WHEN phase = {int(Phase.FETCHING)} THEN -1 ELSE process_number END,
           count(*), sum(state = {int(AttemptState.SUCCEEDED)}), sum(state = {int(AttemptState.FAILED)}),
           sum(item_count),
           sum(CASE WHEN state = {int(AttemptState.SUCCEEDED)} THEN min(result_count, item_count) ELSE 0 END),
           {_total("elapsed_us")}, {_total("cpu_us")}, {_total("run_us")},
           min(start_unix_us), max(start_unix_us + elapsed_us), max(peak_rss_kib),
           max(lease_id), min({ATTEMPTS.holds()})
    FROM (SELECT * FROM attempt INDEXED BY attempt_by_step WHERE step_id = ? AND lease_id > ? ORDER BY lease_id LIMIT ?)
    GROUP BY 1, 2, 3"""
"""The sums for each worker, and for attempts of which no worker has told, over the next page of attempts."""

LONGEST_QUERY = f"""
    SELECT m.recipe_length, m.recipe_crc32, a.elapsed_us
    FROM attempt AS a JOIN mini_batch AS m ON m.key = a.step_id << {MINI_BATCH_SHIFT} | a.mini_batch
    WHERE a.step_id = ? AND a.state = {int(AttemptState.SUCCEEDED)} AND a.elapsed_us > ?
    ORDER BY a.elapsed_us DESC, a.mini_batch LIMIT ?"""
"""The longest attempts that succeeded. Only a hint for the next job, so that no check value is looked at."""

MOST_TRIED_QUERY = f"""
    SELECT mini_batch, count(*), sum(state = {int(AttemptState.FAILED)}) FROM attempt
    WHERE step_id = ? AND state <> {int(AttemptState.SUCCEEDED)}
    GROUP BY mini_batch ORDER BY 2 DESC, 1 LIMIT ?"""
