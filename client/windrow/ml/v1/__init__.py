"""The Python API shaped like `azureml`, as far as notebooks with a ParallelRunStep use it.

Replace `azureml` by `windrow.ml.v1` in the imports. Pipelines are translated as v1's YAML is. Reference:
docs/reference/azure-ml/parallel-job.md#version-1, #reserved-arguments. What is not here: docs/reference/python.md.

`windrow.ml.v1.core`, `.data`, `.pipeline` and the like are not files: `names` lists them, and `finder` makes them. For
type checkers and editors there are stubs (`*.pyi`), made from the same list.
"""

from __future__ import annotations

from windrow.ml.v1.finder import install

install()
