"""Checks of single values in an MLTable file; each notes an error for a wrong value and returns a harmless one."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence, is_null, shown
from windrow.spec.reading.problems import Problems, did_you_mean, listed


class ValueChecks:
    """Reads the kinds of values that an MLTable file holds. `key` is the dotted path of a value, for messages."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def error(self, node: Node | Place, key: str, message: str) -> None:
        """Notes an error at a value."""
        self._problems.error(node, key, message)

    def warn(self, node: Node, key: str, message: str) -> None:
        """Notes a warning at a value."""
        self._problems.warn(node, key, message)

    def mapping(self, node: Node, key: str, known: Iterable[str], should: str) -> dict[str, Node]:
        """Reads a mapping that may only have `known` keys; entries without a value are left out."""
        if not isinstance(node, Mapping):
            self.error(node, key, f"{should}, not {shown(node)}.")
            return {}
        known = tuple(known)
        for name in node.entries:
            if name not in known:
                place = node.key_places[name]
                full = f"{key}.{name}" if key else name
                self._problems.error(
                    place, full, f"is unknown here.{did_you_mean(name, known)} Known keys: {', '.join(known)}."
                )
        return {name: value for name, value in node.entries.items() if name in known and not is_null(value)}

    def settings(self, node: Node | None, key: str, known: Iterable[str]) -> dict[str, Node]:
        """Reads the settings of a step; none if nothing is given."""
        if node is None or is_null(node):
            return {}
        return self.mapping(node, key, known, "takes a mapping of settings")

    def text(self, node: Node, key: str) -> str | None:
        """Reads text."""
        if isinstance(node, Scalar) and not is_null(node):
            return node.text
        self.error(node, key, f"must be text, not {shown(node)}.")
        return None

    def texts(self, node: Node, key: str) -> tuple[str, ...]:
        """Reads one text or a list of them; empty after an error."""
        nodes = node.items if isinstance(node, Sequence) else (node,)
        found = [self.text(item, key) for item in nodes]
        if not found:
            self.error(node, key, "is empty.")
        return tuple(text for text in found if text is not None)

    def boolean(self, node: Node, key: str) -> bool:
        """Reads true or false."""
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self.error(node, key, f"must be true or false, not {shown(node)}.")
        return False

    def flag(self, values: dict[str, Node], key: str, name: str) -> bool:
        """Reads the setting `name`: true or false, by default false."""
        return name in values and self.boolean(values[name], f"{key}.{name}")

    def choice(self, values: dict[str, Node], key: str, name: str, choices: tuple[str, ...]) -> str | None:
        """Reads the setting `name`: one of `choices`, or None if it is not given."""
        if name not in values:
            return None
        text = self.text(values[name], f"{key}.{name}")
        if text is None or text in choices:
            return text
        self.error(
            values[name],
            f"{key}.{name}",
            f"{shown(values[name])} is not allowed.{did_you_mean(text, choices)} Allowed values: {', '.join(choices)}.",
        )
        return None

    def whole(self, node: Node, key: str, minimum: int, what: str) -> int | None:
        """Reads a whole number of at least `minimum`."""
        if isinstance(node, Scalar) and type(node.value) is int and node.value >= minimum:
            return node.value
        self.error(node, key, f"must be {what}, at least {minimum}, not {shown(node)}.")
        return None

    def number(self, node: Node, key: str, low: float, high: float) -> float | None:
        """Reads a number from `low` to `high`."""
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        self.error(node, key, f"must be a number from {low:g} to {high:g}, not {shown(node)}.")
        return None

    def no_repeats(self, node: Node, key: str, names: tuple[str, ...]) -> None:
        """Notes an error for names that are repeated."""
        if repeated := _repeated(names):
            self.error(node, key, f"names {listed(repeated)} more than once.")

    def repeats_do_nothing(self, node: Node, key: str, names: tuple[str, ...]) -> None:
        """Warns of repeated names, which have no effect."""
        if repeated := _repeated(names):
            self.warn(node, key, f"names {listed(repeated)} more than once; once is enough.")


def _repeated(names: tuple[str, ...]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
