"""Which values count as secrets, and what is shown in their place."""

from __future__ import annotations

import json
from typing import Any

from windrow.common.secret_values import shown_document


def document(**step: Any) -> bytes:
    whole = {"environment_variables": {}, "arguments": [], **step}
    return json.dumps({"steps": [whole], "name": "job"}).encode()


def test_values_of_secrets_are_left_out_of_a_shown_document() -> None:
    given = document(
        environment_variables={"API_KEY": "s3cr3t", "DB_PASSWORD": "pw", "MODEL": "large"},
        arguments=["--token", "abc", "--account-key=def", "--rows", "10", "--secret", "--last"],
    )
    (step,) = json.loads(shown_document(given))["steps"]
    assert step["environment_variables"] == {"API_KEY": "left-out", "DB_PASSWORD": "left-out", "MODEL": "large"}
    shown = ["--token", "left-out", "--account-key=left-out", "--rows", "10", "--secret", "--last"]
    assert step["arguments"] == shown


def test_other_documents_are_shown_as_they_are() -> None:
    for given in (document(), document(environment_variables={"MONKEY": "1"}), b"no document: token", b"\xff token"):
        assert shown_document(given) == given
