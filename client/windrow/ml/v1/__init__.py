"""The Python API shaped like `azureml`, as far as notebooks with a ParallelRunStep use it.

Replace `azureml` by `windrow.ml.v1` in the imports. Pipelines are translated as v1's YAML is. Reference:
parallel-job.md, sections 1.5 and 2.1. What is not here: docs/reference/python.md.
"""
