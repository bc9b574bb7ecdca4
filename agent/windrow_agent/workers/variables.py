"""The environment variables of a worker process: an allow-list, so that no credential of the agent gets there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from windrow_agent.node.strays import MARK

PASSED = frozenset(
    [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMPDIR",
        "HOSTNAME",
        "PYTHONPATH",
        "PYTHONHASHSEED",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONIOENCODING",
        "PYTHONUTF8",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "CONDA_DEFAULT_ENV",
        "CONDA_SHLVL",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "TOKENIZERS_PARALLELISM",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "XDG_CACHE_HOME",
        "HF_HOME",
        "TORCH_HOME",
        "MALLOC_ARENA_MAX",
        "MPLBACKEND",
        "MPLCONFIGDIR",
    ]
)
"""Names that are passed on from the agent's environment, besides LC_*."""

_OF_OWN_PYTHON = ("PYTHONPATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_SHLVL")


def passed_variables(
    agent: Mapping[str, str], *, passed: Iterable[str] = (), built: str | None = None
) -> dict[str, str]:
    """The part of the agent's environment that a script gets. `passed`, `built`: as in `worker_environment`."""
    allowed = PASSED.union(passed)
    variables = {name: value for name, value in agent.items() if name in allowed or name.startswith("LC_")}
    if built is not None:
        for name in _OF_OWN_PYTHON:
            variables.pop(name, None)
        if Path(built, "conda-meta").is_dir():
            variables.pop("VIRTUAL_ENV", None)
            # Otherwise packages in ~/.local come first; a virtual environment has none of them.
            variables |= {"CONDA_PREFIX": built, "PYTHONNOUSERSITE": "1"}
        else:
            variables["VIRTUAL_ENV"] = built
        variables["PATH"] = os.pathsep.join(filter(None, [f"{built}/bin", variables.get("PATH", "")]))
    return variables


def worker_environment(
    agent: Mapping[str, str],
    step: Mapping[str, str],
    *,
    passed: Iterable[str] = (),
    built: str | None = None,
    job_id: str,
    node_id: str,
    node_rank: int,
    mark: str,
    output_path: str,
    work_folder: str,
    gpu_count: int,
    gpu_device: str | None,
    gpu_variable: str = "CUDA_VISIBLE_DEVICES",
    gpu_bounds: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The whole environment of one worker (docs/reference/azure-ml/parallel-job.md#workers, #gpus).

    `passed`: further names that the node's owner allows. `built`: the folder of the virtual or conda environment that
    was built for the step; variables of the agent's own Python are then left out. `work_folder`: where the worker
    begins, which holds the step's code. `gpu_device`: the value of `gpu_variable`; None if it is not set. `gpu_bounds`:
    variables that keep it within its part of a GPU. A step's own variables win over ours, except the mark.
    """
    environment = passed_variables(agent, passed=passed, built=built)
    environment |= {
        "AZUREML_RUN_ID": job_id,
        "AZUREML_CR_NODE_RANK": str(node_rank),
        "HostName": node_id,
        "AZ_BATCHAI_GPU_COUNT_FOUND": str(gpu_count),
        "AZ_BATCHAI_JOB_WORK_DIR": work_folder,
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": work_folder,
    }
    if output_path:
        environment["AZUREML_BI_OUTPUT_PATH"] = output_path
    if gpu_device is not None:
        environment[gpu_variable] = gpu_device
    environment |= gpu_bounds
    environment |= step
    environment[MARK] = mark
    return environment
