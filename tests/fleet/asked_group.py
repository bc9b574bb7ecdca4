"""A group of a fleet on an engine of the tests, as its provider is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from windrow.fleet.provider import Provider, Request, Seen

STAYS = ("sleep", "3600")


class AskedGroup(ABC):
    """What all engines are asked in the same way."""

    provider: Provider

    @abstractmethod
    def request(self, arguments: tuple[str, ...] = STAYS, **given: Any) -> Request:
        """A request with a new name."""

    def submit(self, arguments: tuple[str, ...] = STAYS, **given: Any) -> str:
        """Ask for an allocation; return its name."""
        request = self.request(arguments, **given)
        self.provider.submit(request)
        return request.name

    def seen(self, name: str) -> Seen | None:
        """What the provider says of an allocation."""
        return next((seen for seen in self.provider.allocations() if seen.name == name), None)

    def must_see(self, name: str) -> Seen:
        """What the provider says of an allocation that is there."""
        seen = self.seen(name)
        assert seen is not None, f"{name} is not listed"
        return seen
