"""The Python API shaped like `azureml`, as far as notebooks with a ParallelRunStep use it.

Replace `azureml` by `windrow.ml.v1` in the imports. Pipelines are translated as v1's YAML is. Reference:
docs/reference/azure-ml/parallel-job.md#version-1, #reserved-arguments. What is not here: docs/reference/python.md.

`windrow.ml.v1.core`, `.data`, `.pipeline` and the like are no files: `names` lists them, and `finder` makes them.
"""

from __future__ import annotations

from windrow.ml.v1.finder import install

install()
