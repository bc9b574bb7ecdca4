"""Which store an address means for this process, and as whom it is read there."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache

_SETTINGS = {
    "s3": ("AWS_", "HOME"),
    "gs": ("GOOGLE_", "STORAGE_EMULATOR_HOST", "HOME"),
    "abfss": ("AZURE_", "HOME"),
    "az": ("AZURE_", "HOME"),
}
"""How the variables begin that choose the endpoint and the credentials of a store; the tools of the clouds keep more of
them in files of the home folder."""


@cache
def store_identity(root: str) -> str:
    """A digest of a store's root (`StorageUrl.root`), and of what decides in the environment of this process which
    service answers there, and as whom it is asked: two processes with the same one may read the same.
    """
    begins = _SETTINGS.get(root.partition(":")[0], ())
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(begins) and begins)
    return hashlib.sha256(json.dumps([root, settings]).encode()).hexdigest()
