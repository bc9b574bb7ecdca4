"""The page that `windrow job report` makes: a job's figures (docs/contracts.md, section 6) drawn as one HTML file.

It needs nothing but itself: no network, no fonts, no scripts of others. Its colours follow the reader's theme.

- `page`           puts it together: header, one section for each step.
- `timeline`       what workers did when, and the sum over time.
- `distributions`  durations and memory.
- `tables`         nodes, workers, slowest mini-batches, failures.
- `drawing`        SVG, axes, words for numbers.
"""

from __future__ import annotations

from windrow.job_page.page import job_page

__all__ = ["job_page"]
