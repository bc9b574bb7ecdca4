"""What scripts have logged by `Run.log`: a table, with a line for each name that has many numbers; and tags."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final, Protocol

from windrow.common.quantities import shown_value

LINE_FROM: Final = 3
"""Numbers; fewer make no line."""
WIDE: Final = 240
TALL: Final = 36


class ShownMetric(Protocol):
    """What is shown of a metric; `windrow.sdk.metrics.Metric` has this shape."""

    @property
    def step(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def newest(self) -> Any: ...
    @property
    def values(self) -> int: ...
    @property
    def minimum(self) -> float | None: ...
    @property
    def maximum(self) -> float | None: ...
    @property
    def points(self) -> Sequence[tuple[float, float]]: ...


class ShownTag(Protocol):
    """What is shown of a tag; `windrow.sdk.metrics.Tag` has this shape."""

    @property
    def step(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...
    @property
    def is_property(self) -> bool: ...


def tags_table(tags: Sequence[ShownTag]) -> str:
    """A row for each tag or property."""
    body = "".join(
        f'<tr><th scope="row">{escape(tag.name)}</th><td>{"property" if tag.is_property else "tag"}</td>'
        f"<td>{escape(tag.value or '')}</td></tr>"
        for tag in tags
    )
    return (
        '<div class="wide"><table class="sortable"><thead><tr><th>name</th><th>kind</th><th>value</th></tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def metrics_table(metrics: Sequence[ShownMetric]) -> str:
    """A row for each metric."""
    body = "".join(
        f'<tr><th scope="row">{escape(metric.name)}</th><td class="n">{escape(shown_value(metric.newest))}</td>'
        f'<td class="n">{metric.values:,}</td><td class="n">{_number(metric.minimum)}</td>'
        f'<td class="n">{_number(metric.maximum)}</td><td class="plot">{_line(metric)}</td></tr>'
        for metric in metrics
    )
    return (
        '<div class="wide"><table class="sortable"><thead><tr><th>metric</th><th class="n">newest</th>'
        '<th class="n">values</th><th class="n">smallest</th><th class="n">largest</th><th>over time</th>'
        f"</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _number(value: float | None) -> str:
    return "" if value is None else shown_value(value)


def _line(metric: ShownMetric) -> str:
    """The numbers over time."""
    points = metric.points
    if len(points) < LINE_FROM:
        return ""
    begin, end = points[0][0], points[-1][0]
    low, high = min(value for _, value in points), max(value for _, value in points)
    across, up = WIDE / (end - begin or 1), (TALL - 4) / (high - low or 1)
    places = " ".join(f"{across * (time - begin):.1f},{TALL - 2 - up * (value - low):.1f}" for time, value in points)
    label = f"{metric.name}: from {shown_value(points[0][1])} to {shown_value(points[-1][1])}"
    return (
        f'<svg viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'<polyline class="metric" points="{places}"><title>{escape(label)}</title></polyline></svg>'
    )
