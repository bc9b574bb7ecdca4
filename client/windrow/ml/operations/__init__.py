"""The operations of an `MLClient`, one module for each attribute such as `client.jobs`."""

from __future__ import annotations

from windrow.ml.absent import standing_in

__getattr__ = standing_in(__name__)
