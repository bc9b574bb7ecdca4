"""Which values count as secrets, and what is shown in their place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from windrow.common.secret_values import (
    SOUGHT_MAX,
    redacted,
    secret_variables,
    secrets_in,
    shown_document,
    without_secrets,
)
from windrow.storage.urls import BadUrl, parse_url


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


KEY = "Zm9vYmFyYmF6cXV4" * 5 + "=="
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nabc+/=\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net", KEY),
        (f"Endpoint=sb://bus.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey={KEY}", KEY),
        ("BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=2024&sig=abc", "sv=2024&sig=abc"),
        ("Server=db;User Id=me;Password=hunter22;", "hunter22"),
        ("https://a.blob.core.windows.net/c/f.csv?sv=2024-08-04&sr=b&sig=aB3%2Fd9xYzQ7LmN0pQrStUv%3D&se=2027", None),
        ("https://b.s3.amazonaws.com/k?X-Amz-Date=2&X-Amz-Signature=" + "0a" * 32, "0a" * 32),
        ("postgresql+psycopg2://me:hunter22@db:5432/rows", "hunter22"),
        ("redis://:hunter22@cache/0", "hunter22"),
        (
            "https://conda.anaconda.org/t/ab-12345678-1234-1234-1234-123456789012/mine",
            "ab-12345678-1234-1234-1234-123456789012",
        ),
        (f"key is {PEM} here", PEM),
        (PEM.replace("RSA ", "").partition("-----END")[0], None),
        ("ghp_" + "a1B2" * 9, "ghp_" + "a1B2" * 9),
        ("github_pat_" + "a1B2" * 12, "github_pat_" + "a1B2" * 12),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("hf_" + "a1B2" * 8, "hf_" + "a1B2" * 8),
        ("sk-proj-" + "a1B2" * 10, "sk-proj-" + "a1B2" * 10),
        ("xoxb-1234567890-abcdef", "xoxb-1234567890-abcdef"),
        (f"Bearer {JWT}", JWT),
    ],
)
def test_what_looks_like_a_secret_is_left_out_whatever_its_name(value: str, secret: str | None) -> None:
    found = secrets_in(value)
    assert len(found) == 1 and (secret is None or found == [secret]), found
    assert secret_variables({"PLACE": value}) == {"PLACE": value}
    told, left_out = without_secrets(["--place", value, "--rows", "10"])
    assert told == ["--place", value.replace(found[0], "left-out"), "--rows", "10"]
    assert left_out == {"argument 2": found[0]}
    assert found[0] not in redacted(f"it failed with {value!s}", [])
    shown = shown_document(document(environment_variables={"PLACE": value}, arguments=[value], command=f"x {value}"))
    (step,) = json.loads(shown)["steps"]
    assert step["environment_variables"] == {"PLACE": "left-out"}
    assert not [text for text in (*step["arguments"], step["command"]) if found[0] in text]


@pytest.mark.parametrize(
    "value",
    [
        "https://account.blob.core.windows.net/container/folder?sv=2024&sr=b",
        "https://host:8443/path?q=a@b",
        "git@github.com:me/repository.git",
        "ssh://git@host:22/x",
        "postgresql://me@db/rows",
        "postgresql://me:${PASSWORD}@db/rows",
        "azureml://datastores/lake/paths/a:b@c/",
        "AccountName=a;EndpointSuffix=core.windows.net",
        "sk-learn-pipeline-with-a-name-that-goes-on-and-on",
        "task-" + "a1B2" * 10,
        "hf_internal_testing",
        "d41d8cd98f00b204e9800998ecf8427e",
        "0123456789abcdef" * 4,
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "https://h/?sig=1&signature_version=2",
        "AKIA is a prefix",
        "eyJ is how a token begins",
        "x" * 100_000,
        "a://" * 25_000,
    ],
)
def test_what_is_no_secret_stays(value: str) -> None:
    assert secrets_in(value) == []
    given = document(environment_variables={"PLACE": value}, arguments=["--place", value], command=value)
    assert shown_document(given) == given


SIGNED = "https://a.blob.core.windows.net/c/f.csv?sv=2024-08-04&sr=b&sig=aB3%2Fd9xYzQ7LmN0pQrStUv%3D&se=2027"
SIGNATURE = "aB3%2Fd9xYzQ7LmN0pQrStUv%3D"


def test_a_secret_is_left_out_wherever_it_stands_in_a_document() -> None:
    whole = {
        "name": "job",
        "tags": {"from": SIGNED},
        "steps": [
            {
                "environment_variables": {},
                "arguments": ["--of", "${{inputs.source}}"],
                "command": "load s3cr3t-of-mine",
                "inputs": {
                    "source": {"kind": "literal", "value": SIGNED},
                    "api_key": {"kind": "literal", "value": "s3cr3t-of-mine"},
                    "data": {"kind": "data", "path": "ftp://me:hunter22@host/data", "type": "uri_folder"},
                    "token": {"kind": "data", "path": "/data/token", "type": "uri_folder"},
                },
                "environment": {"options": ["--extra-index-url=https://me:hunter22@pypi.example/simple"]},
            }
        ],
    }
    shown = shown_document(json.dumps(whole).encode()).decode()
    for secret in (SIGNATURE, "hunter22", "s3cr3t-of-mine"):
        assert secret not in shown
    (step,) = json.loads(shown)["steps"]
    assert step["inputs"]["data"]["path"] == "ftp://me:left-out@host/data"
    assert step["inputs"]["token"]["path"] == "/data/token" and step["arguments"] == ["--of", "${{inputs.source}}"]
    assert json.loads(shown)["tags"]["from"] == SIGNED.replace(SIGNATURE, "left-out")


@pytest.mark.parametrize(
    "address", ["ftp://me:hunter22@host/x", "s3://me:hunter22@bucket/x", "https://me:hunter22@h/x"]
)
def test_a_refused_address_is_told_without_its_password(address: str) -> None:
    with pytest.raises(BadUrl) as refused:
        parse_url(address)
    assert "hunter22" not in str(refused.value)


def test_however_many_secrets_a_text_shows_each_is_left_out_where_it_shows_and_a_bounded_number_everywhere() -> None:
    """The time is linear: 3 MB that show 300,000 took half an hour."""
    values = [f"hidden{number:07d}" for number in range(5 * SOUGHT_MAX)]
    told = redacted("".join(f"pwd={value};" for value in values) + " ".join(["", values[0], values[-1]]), ())
    assert told == "pwd=left-out;" * len(values) + f" left-out {values[-1]}"
    arguments, found = without_secrets(["".join(f"pwd={value};" for value in values)])
    assert arguments == ["pwd=left-out;" * len(values)] and len(found) == len(values)


@pytest.mark.parametrize("run", ["sk-" * 100_000, "eyJ-" * 100_000, "eyJ." * 100_000, "eyJ" + "a" * 400_000])
def test_runs_that_begin_as_secrets_do_are_looked_at_once(run: str) -> None:
    assert redacted(f"{run} pwd=hunter22", ()) == f"{run} pwd=left-out"
