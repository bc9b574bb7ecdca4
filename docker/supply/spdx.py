"""The licence of a Python package as SPDX writes it, from what the package says of itself.

New packages say it so; older ones by a classifier, or in words of their own. Only the standard library: it also runs
where the images are built.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution

_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_WORDS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "isc license": "ISC",
    "mit license": "MIT",
    "psfl": "PSF-2.0",
}
_OWN = {"python-dateutil": "Apache-2.0 OR BSD-3-Clause"}
"""Of packages whose metadata need their licence file beside them: that one says which of two may be chosen."""


def licence(package: Distribution) -> str | None:
    """An SPDX expression; None where nothing that the package says is known to be one."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    if own := _OWN.get(str(told["Name"]).lower()):
        return own
    words = (told.get("License") or "").strip()
    if known := _WORDS.get(words.lower()):
        return known
    if re.fullmatch(r"[A-Za-z0-9.+-]+", words) and words.upper() not in ("", "UNKNOWN", "BSD", "APACHE", "DUAL"):
        return words
    names = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or [] if line.startswith("License :: ")]
    found = {_CLASSIFIERS.get(name) for name in names if name != "OSI Approved"}
    return found.pop() if len(found) == 1 else None
