"""Names for the values of settings. Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs."""

from __future__ import annotations

from windrow.ml.absent import standing_in


class AssetTypes:
    """Types of data and models."""

    URI_FILE = "uri_file"
    URI_FOLDER = "uri_folder"
    MLTABLE = "mltable"
    CUSTOM_MODEL = "custom_model"
    MLFLOW_MODEL = "mlflow_model"
    TRITON_MODEL = "triton_model"


class InputOutputModes:
    """How data gets to a step, and from it."""

    MOUNT = "mount"
    RO_MOUNT = "ro_mount"
    RW_MOUNT = "rw_mount"
    DOWNLOAD = "download"
    UPLOAD = "upload"
    DIRECT = "direct"
    EVAL_MOUNT = "eval_mount"
    EVAL_DOWNLOAD = "eval_download"


class InputTypes:
    """Types of literal inputs."""

    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"


__getattr__ = standing_in(__name__)
