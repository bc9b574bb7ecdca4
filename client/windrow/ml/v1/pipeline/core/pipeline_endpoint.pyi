# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.published import PipelineEndpoint
from windrow.ml.v1.published import PublishedPipeline

__all__ = [
    "PipelineEndpoint",
    "PublishedPipeline",
]
