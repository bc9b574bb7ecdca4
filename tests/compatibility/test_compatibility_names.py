"""All public names of the vendor's packages can be imported; what Windrow does not have says at use what to do."""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from foreign_environments import Environments
from windrow.errors import UsageError
from windrow.ml.stand_ins import mirrored

LISTER = Path(__file__).with_name("vendor_names.py")
MIRRORED = {"azure.ai.ml": "windrow.ml", "azureml": "windrow.ml.v1"}
ROOTS = {**MIRRORED, "azure.identity": "windrow.ml.identity"}
Names = Mapping[str, Mapping[str, Any]]


def listed(python: Path, root: str) -> dict[str, Names]:
    """The vendor's names, from the packages themselves."""
    made = subprocess.run([str(python), str(LISTER), root], capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, Names] = json.loads(made.stdout)
    return found


@pytest.mark.parametrize("root", ROOTS)
def test_no_name_of_the_vendors_packages_is_missing(environments: Environments, root: str) -> None:
    python = environments.vendors_sdk() if root == "azureml" else environments.vendors_client()
    found = listed(python, root)
    found.pop("azure.identity.aio", None)
    assert sum(len(names) for kinds in found.values() for names in kinds.values()) > 10
    assert not list(_missing(root, found))
    if root in MIRRORED:
        resource = Path(importlib.import_module("windrow.ml").__file__ or "").parent / "mirrored" / f"{root}.json"
        assert json.loads(resource.read_text("utf-8")) == found, f"{LISTER.name} {root} makes {resource.name} anew"


def _missing(root: str, found: Mapping[str, Names]) -> Iterator[str]:
    for module, kinds in found.items():
        here = importlib.import_module(module.replace(root, ROOTS[root], 1))
        for kind, names in kinds.items():
            for name in names.split() if isinstance(names, str) else names:
                there = getattr(here, name, None)
                if kind == "values":
                    is_same = there == names[name] or name == "VERSION"
                elif kind in ("members", "enums"):
                    is_same = all(hasattr(there, member) for member in names[name])
                elif kind == "exceptions":
                    kinds_of_it = there if isinstance(there, tuple) else (there,)
                    is_same = all(isinstance(one, type) and issubclass(one, Exception) for one in kinds_of_it)
                else:
                    is_same = callable(there)
                if not is_same:
                    yield f"{module}.{name}"


@pytest.mark.parametrize("root", MIRRORED)
def test_what_windrow_does_not_have_is_refused_where_it_is_used(root: str) -> None:
    stood = 0
    for module, kinds in mirrored(root).items():
        here = importlib.import_module(module.replace(root, MIRRORED[root], 1))
        for name in kinds.get("classes", {}):
            made = getattr(here, name)
            if not hasattr(made, "words"):
                continue
            stood += 1
            with pytest.raises(UsageError, match=rf" has no {name}: \S.*\S{{4}}"):
                made()
            assert made.words.endswith((".", " FILE"))
    assert stood > 100


def test_a_stand_in_can_be_named_and_asked_for_but_not_used() -> None:
    from windrow.ml.entities import BatchEndpoint
    from windrow.ml.v1.core import Keyvault
    from windrow.ml.v1.core.keyvault import Keyvault as Same

    assert Keyvault is Same
    assert not isinstance("secret", Keyvault) and not hasattr(Keyvault, "get_secret")
    assert BatchEndpoint | None
    uses: list[Any] = [
        lambda: BatchEndpoint.name,
        lambda: BatchEndpoint["x"],
        lambda: type("Mine", (BatchEndpoint,), {}),
    ]
    for use in uses:
        with pytest.raises(UsageError, match="Windrow has no endpoints and deployments"):
            use()


def test_the_vendors_exceptions_can_be_caught() -> None:
    from windrow.errors import JobFailed
    from windrow.ml.exceptions import EmptyDirectoryError, MlException
    from windrow.ml.v1.exceptions import AzureMLException, ExperimentExecutionException, TrainingException

    for kind in (MlException, AzureMLException, ExperimentExecutionException):
        try:
            raise JobFailed("it failed")
        except EmptyDirectoryError:
            pytest.fail("nothing raises this one")
        except TrainingException:
            pytest.fail("nothing raises this one")
        except kind:
            pass


def test_constants_have_the_vendors_values() -> None:
    from windrow.ml.constants import ListViewType, TimeZone
    from windrow.ml.v1.core.runconfig import DEFAULT_CPU_IMAGE

    assert DEFAULT_CPU_IMAGE.startswith("mcr.microsoft.com/azureml/openmpi")
    assert (ListViewType.ALL, TimeZone.UTC) == ("All", "UTC")
