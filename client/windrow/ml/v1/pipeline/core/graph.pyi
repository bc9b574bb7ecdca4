# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.bindings import PipelineParameter
from windrow.ml.v1.published import PublishedPipeline

__all__ = [
    "PipelineParameter",
    "PublishedPipeline",
]
