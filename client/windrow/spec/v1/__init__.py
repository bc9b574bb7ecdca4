"""Azure ML v1: ParallelRunConfig files and pipelines of ParallelRunSteps, translated into the tree of a v2 pipeline.

The translated values keep the places where the user wrote them, and `Problems.spelled` the keys, so that an error of
the v2 reader names the line and the key of the v1 file. Reference: docs/reference/azure-ml/parallel-job.md#version-1,
#reserved-arguments.
"""
