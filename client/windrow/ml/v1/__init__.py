"""The Python API shaped like `azureml`, as far as notebooks with a ParallelRunStep use it.

Replace `azureml` by `windrow.ml.v1` in the imports. Pipelines are translated as v1's YAML is. Reference:
docs/reference/azure-ml/parallel-job.md#version-1, #reserved-arguments. What is not here: docs/python.md.
"""
