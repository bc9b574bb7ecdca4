"""How attempts ended, in words: each code of the tables has some."""

from __future__ import annotations

import re
from itertools import product

from windrow.common.status_words import status_words
from windrow.job_page.status_cell import status_cell
from windrow_master.core.states import AttemptState, Cause, Phase
from windrow_master.core.statuses import status_of


def test_every_status_is_put_into_words() -> None:
    told = {}
    for state, cause, phase in product(AttemptState, Cause, Phase):
        status = status_of(state, cause, phase)
        if status:
            told[status] = status_words(status)
    assert told["RUN_DONE"] == "done" and told["RUN_EXCEPTION"] == "exception in run()"
    assert (
        told["LOAD_TIMEOUT"] == "timeout while loading"
        and told["RETURN_OOM"] == "out of memory while rows were written"
    )
    for status, words in told.items():
        assert re.fullmatch(r"[a-z][a-z ]*(\(\))?", words), (status, words)
    assert len(set(told.values())) == len(told)


def test_hovering_shows_the_code() -> None:
    assert status_cell("NODE_LOST") == '<span title="NODE_LOST">node lost</span>'
