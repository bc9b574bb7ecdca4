"""The page that `windrow job report` makes: the figures of a job drawn as one self-contained HTML file."""

from __future__ import annotations

from windrow.job_page.page import job_page

__all__ = ["job_page"]
