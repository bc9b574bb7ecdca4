"""Environments and components that a job file names, and the master keeps.

Reference: docs/reference/azure-ml/parallel-job.md#tasks, #parallel-steps.
"""

from __future__ import annotations

import os

from windrow.spec.naming.assets import PACKAGE_FILES, split_asset_reference
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Scalar, shown

_VENDORS = "azureml-"
"""Names of environments that come with Azure ML begin so, in any case. No master has them."""


def registered_file(node: Scalar, kind: str, key: str, context: Context) -> str | None:
    """The file of the environment or component (`kind`) that `[azureml:]<name>:<version>` or `<name>@latest` names.

    Empty if nothing has the name; None, with an error, for a label or version that it does not have.
    """
    try:
        said = split_asset_reference(node.text.strip().removeprefix("azureml:"))
    except ValueError as error:
        context.problems.error(node, key, f"{shown(node)} {error}")
        return None
    lookup = None
    if said is not None and not said[0].lower().startswith(_VENDORS):
        lookup = context.asset_lookup()
    if said is None or lookup is None:
        return ""
    name, sign, version = said
    found = lookup.find(kind, name, version if sign == ":" else None)
    if found is not None:
        return os.path.join(lookup.folder(found), PACKAGE_FILES[kind])
    versions = list(lookup.versions(kind, name))
    if not versions:
        return ""
    context.problems.error(
        node,
        key,
        f"{shown(node)} is not a registered version; the versions of {name} are: "
        f"{', '.join(versions[:10])}{', …' if len(versions) > 10 else ''}.",
    )
    return None
