"""What this user could reach: credentials of stores in the environment (their names, never values), and contexts."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from windrow.doctor.findings import FAIL, OK, WARN, Finding
from windrow.errors import UsageError
from windrow.rpc.contexts import Contexts

AREA = "Access"


class Store(NamedTuple):
    """Environment variables with access to a store. `pairs`: variables of which the first needs the second.
    `file_variables`: variables that name files. `files`: files that are looked for.

    Not the master's `Store`, which is its durable state.
    """

    name: str
    variables: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    file_variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


STORES = (
    Store(
        "S3",
        (
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_PROFILE",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_SKIP_SIGNATURE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ),
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
        ("~/.aws/credentials", "~/.aws/config"),
    ),
    Store(
        "Google",
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT_KEY", "STORAGE_EMULATOR_HOST"),
        (),
        ("GOOGLE_APPLICATION_CREDENTIALS",),
        ("~/.config/gcloud/application_default_credentials.json",),
    ),
    Store(
        "Azure",
        (
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_ENDPOINT",
            "AZURE_CLIENT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_TENANT_ID",
            "AZURE_FEDERATED_TOKEN_FILE",
        ),
        (("AZURE_CLIENT_SECRET", "AZURE_CLIENT_ID"), ("AZURE_CLIENT_SECRET", "AZURE_TENANT_ID")),
        ("AZURE_FEDERATED_TOKEN_FILE",),
    ),
)


def check(environment: Mapping[str, str]) -> Iterator[Finding]:
    """All findings of this area."""
    for store in STORES:
        yield from _store(store, environment)
    yield from _contexts()


def _store(store: Store, environment: Mapping[str, str]) -> Iterator[Finding]:
    there = [name for name in store.variables if environment.get(name)]
    files = [file for file in store.files if Path(file).expanduser().is_file()]
    seen = ", ".join([*there, *files])
    yield Finding(AREA, store.name, OK, seen if seen else "no credentials in the environment or in files")
    for one, other in store.pairs:
        if environment.get(one) and not environment.get(other):
            advice = f"Set {other}, too, or unset {one}."
            yield Finding(AREA, store.name, WARN, f"{one} is set without {other}", advice)
    for name in store.file_variables:
        file = environment.get(name)
        if file and not os.access(file, os.R_OK):
            yield Finding(
                AREA, store.name, WARN, f"{name} names a file that cannot be read", "Correct it, or unset it."
            )


def _contexts() -> Iterator[Finding]:
    try:
        contexts = Contexts()
    except UsageError as error:
        yield Finding(AREA, "contexts", FAIL, str(error), "")
        return
    if not contexts.all:
        yield Finding(AREA, "contexts", OK, "none: commands go to runs on this machine, or to --master")
        return
    used = f"; {contexts.current} is in use" if contexts.current else ""
    seen = f"{', '.join(sorted(contexts.all))} in {contexts.file}{used}"
    others = stat.S_IMODE(contexts.file.stat().st_mode) & 0o077
    if others and any(access.token for access in contexts.all.values()):
        advice = f"It holds tokens, and others may read or write it: chmod 600 {shlex.quote(str(contexts.file))}"
        yield Finding(AREA, "contexts", WARN, seen, advice)
    else:
        yield Finding(AREA, "contexts", OK, seen)
