"""Errors of remote storage, in words for people, and never with a credential in them."""

from __future__ import annotations

import re
from enum import Enum

_WORDS_MAX = 600
_QUERY = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")


class Trouble(Enum):
    """Why an operation on a store failed."""

    MISSING = "missing"
    DENIED = "denied"
    CHANGED = "changed"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


class StorageError(Exception):
    """An object could not be read or written; the text says what, why (in the words of the store) and what to do."""

    def __init__(self, message: str, trouble: Trouble = Trouble.FAILED) -> None:
        super().__init__(message)
        self.trouble = trouble


def explained(error: BaseException, what: str, address: str) -> StorageError:
    """A StorageError for an error of the library. `what`: what failed, such as "cannot be read"."""
    text = f"{type(error).__name__} {error}"
    words = store_words(error)
    kind = type(error).__name__
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        advice, trouble = "The bucket or container does not exist. Check the address.", Trouble.MISSING
    elif isinstance(error, FileNotFoundError) or kind == "NotFoundError":
        advice, trouble = "There is nothing at that address. Check it.", Trouble.MISSING
    elif kind == "PreconditionError":
        advice, trouble = (
            "It has changed since it was listed. Submit the job again when it no longer changes.",
            Trouble.CHANGED,
        )
    elif kind in ("PermissionDeniedError", "UnauthenticatedError") or any(
        sign in text for sign in ("403 Forbidden", "401 Unauthorized", "AccessDenied", "InvalidAccessKeyId")
    ):
        advice = "Give the master and the agents credentials that may do this (see docs/how-to/use-object-storage.md)."
        trouble = Trouble.DENIED
    elif kind == "InvalidPathError" or isinstance(error, ValueError):
        advice = 'Names with an empty part ("//"), ".", ".." or control characters cannot be used; rename the object.'
        trouble = Trouble.UNSUPPORTED
    elif "Content-Length Header missing" in text:
        advice = (
            "The server does not report its length (it sends it in chunks), so it cannot be divided, or checked for "
            "completeness. Copy it to a folder or a bucket, or have the server send Content-Length."
        )
        trouble = Trouble.UNSUPPORTED
    elif kind == "NotSupportedError" or isinstance(error, NotImplementedError):
        advice, trouble = "The server does not offer that.", Trouble.UNSUPPORTED
    else:
        advice, trouble = "Check the network, the endpoint and the credentials.", Trouble.FAILED
    return StorageError(f"{address} {what}. {advice} The store said: {words}", trouble)


def store_words(error: BaseException) -> str:
    """The message of the store in one line, without colours and without queries of addresses, which may be signed."""
    text = _COLOUR.sub("", str(error)).partition("\nDebug source:")[0]
    codes = [found[1] for pattern in (_CODE, _MESSAGE) if (found := pattern.search(text))]
    text = _QUERY.sub(r"\1", " ".join(text.partition("<?xml")[0].split()))
    if codes:
        text = f"{text.rstrip(': ')}: {': '.join(codes)}"
    # Not at the top: the first run() waits for imports.
    from windrow.common.secret_values import shown_text

    text = shown_text(text)
    return text if len(text) <= _WORDS_MAX else text[:_WORDS_MAX] + "…"
