"""Messages in the words of Python: what `windrow.run` and `windrow.map` share with the commands names their options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.errors import WindrowError

_WORDS = {
    "--state must": "state must",
    "--state DIR": "state=DIR",
    "given by --python": "given by python=",
    "--python PATH": "python=PATH",
    "(--python)": "(python=)",
    "the Python of --python": "the Python of python=",
    "leave out --environments own": 'leave out environments="own"',
    "--environments own": 'environments="own"',
    "fewer --slots": "fewer workers",
    "--datastore NAME=PLACE": "datastores={NAME: PLACE}",
    "--datastore default=PATH": 'datastores={"default": PATH}',
    "--datastore ": "datastores: ",
    "--since last (or --since JOB)": 'since="last" (or since=JOB)',
    "--since": "since=",
    "leave --code-change out": "leave code_change out",
    "--code-change rerun": 'code_change="rerun"',
    "--code-change mix": 'code_change="mix"',
    "--restart    ": "restart=True    ",
    "--keep-rows  ": "keep_rows=True  ",
    "--keep-rows:": "keep_rows=True:",
    "the same command continues it": "the same call continues it",
    "use --as files to get the paths of whole files": "give a list of the paths of whole files",
    "use --as files to get the paths of all": "give a list of the paths of all",
}
_OPTIONS = re.compile("|".join(map(re.escape, sorted(_WORDS, key=len, reverse=True))))


@contextmanager
def python_words() -> Iterator[None]:
    """Names the arguments of Python, not options, in the message of a WindrowError that leaves the block."""
    try:
        yield
    except WindrowError as error:
        error.args = (_OPTIONS.sub(lambda found: _WORDS[found[0]], str(error)),)
        raise
