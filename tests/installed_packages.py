"""Which packages are installed here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution


def is_installed(name: str) -> bool:
    """Whether a distribution is installed; a folder of that name, which can be imported, does not count."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
