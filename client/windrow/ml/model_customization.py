"""As `azure.ai.ml.model_customization`. Windrow has none of it: what is imported says at use what to do instead."""

from __future__ import annotations

from windrow.ml.absent import standing_in

__getattr__ = standing_in(__name__)
