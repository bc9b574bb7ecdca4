"""Names of azureml that scripts import, often without a use: an import never fails, and each name says at its use
what to do instead.

The modules that are no files here are made when they are imported. Public classes are known by their capital letter:
exceptions can be caught, credentials are accepted and not used, and all else raises. The vendor's other packages below
`azureml` have any module and any name, functions among them.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, NoReturn, Optional, Sequence

_MODULES = {
    "azureml.core": "authentication compute compute_target conda_dependencies container_registry databricks "
    "environment experiment image keyvault linked_service private_endpoint profile resource_configuration runconfig "
    "script_run script_run_config util webservice",
    "azureml.core.compute": "adla aks amlcompute batch compute computeinstance databricks datafactory dsvm hdinsight "
    "kubernetescompute kusto remote synapse",
    "azureml.core.image": "container image unknown_image",
    "azureml.core.webservice": "aci aks container_resource_requirements local unknown_webservice webservice",
    "azureml.data": "abstract_dataset abstract_datastore azure_data_lake_datastore azure_my_sql_datastore "
    "azure_postgre_sql_datastore azure_sql_database_datastore azure_storage_datastore constants context_managers "
    "data_reference datacache datapath dataset_consumption_config dataset_definition dataset_error_handling "
    "dataset_factory dataset_profile dataset_snapshot dataset_type_definitions dbfs_datastore file_dataset "
    "hdfs_datastore output_dataset_config sql_data_reference stored_procedure_parameter tabular_dataset",
}
"""By package, the modules of azureml-core 1.61 in it."""
_NAMES = frozenset(package + "." + name for package, names in _MODULES.items() for name in names.split())
_HERE = {
    "DataPath": "datastore",
    "Dataset": "dataset",
    "Datastore": "datastore",
    "Model": "model",
    "Run": "run",
    "Workspace": "workspace",
}
"""By name, the module of what is carried out; all modules have these names."""

DATA = (
    "give the data to the step as an input. Run.get_context().input_datasets[NAME] is its path, with to_path() and "
    "to_pandas_dataframe()"
)
OUTPUT = "what the step writes goes into its outputs, and an output of the job file or notebook can be registered"
NONE = "a script has no workspace but the one of its run. Do this in the notebook that submits the job"
SECRETS = "secrets are not kept. Read an environment variable; windrow agent --pass-env NAME lets it through"
_ENVIRONMENT = "a script runs in the environment of its step, which the notebook or job file chooses"
_POOL = "a script runs on the nodes that its step has got; the notebook or job file names their pool (compute)"
_INSTEAD = {
    "Experiment": "Run.get_context().experiment.name is the name of the script's own; notebooks submit to others",
    "Keyvault": SECRETS,
    **dict.fromkeys(("CondaDependencies", "DockerConfiguration", "DockerSection", "Environment"), _ENVIRONMENT),
    **dict.fromkeys(("PythonSection", "RunConfiguration", "ScriptRunConfig"), _ENVIRONMENT),
    **dict.fromkeys(("AmlCompute", "ComputeInstance", "ComputeTarget"), _POOL),
    **dict.fromkeys(("DataReference", "DatasetConsumptionConfig", "FileDataset", "TabularDataset"), DATA),
    **dict.fromkeys(("OutputFileDatasetConfig", "OutputDatasetConfig"), OUTPUT),
    **dict.fromkeys(("AciWebservice", "AksWebservice", "Webservice"), "Windrow deploys no models"),
}


_SUBMITS = "a script submits nothing. Do this in the notebook or job file that submits the job"
_SEARCH = (
    "Windrow does not search hyperparameters or models. Let a search of the script's own, such as scikit-learn's, run "
    "in the step, or make the values to try the items of a parallel step"
)
_SERVICE = "there is no service to ask. Run.get_context() has what the script's run offers"
OTHERS = {
    "_restclient": _SERVICE,
    "contrib": _SUBMITS,
    "history": _SERVICE,
    "pipeline": _SUBMITS,
    "telemetry": _SERVICE,
    "train": _SEARCH,
    "widgets": "a script has no notebook to show anything in",
}
"""The parts of `azureml` of other packages, and what is said of their names."""


class AzureMLException(Exception):
    """The base of the exceptions of azureml-core, which Windrow does not raise."""


_made: Dict[str, Any] = {"AzureMLException": AzureMLException}
"""Those that were asked for: the same one, from whichever module it is imported."""


def missing(owner: str, name: str, why: str) -> AttributeError:
    """The error for an attribute that is not there."""
    if name.startswith("__"):
        return AttributeError(name)
    return AttributeError("%s.%s is not there in a script of Windrow: %s" % (owner, name, why))


class Named(type):
    """The type of classes whose missing attributes say what to do instead, by `why_absent` of the class."""

    why_absent = NONE

    def __getattr__(cls, name: str) -> NoReturn:
        """Raises AttributeError."""
        raise missing(cls.__name__, name, cls.why_absent)


class _StandIn(metaclass=Named):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Raises RuntimeError."""
        made = type(self)
        raise RuntimeError("%s is not there in a script of Windrow: %s" % (made.__name__, made.why_absent))


class _Credentials(metaclass=Named):
    """Accepted by a workspace, and not used: the node of a script knows its master."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Accepts anything."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        raise missing(type(self).__name__, name, type(self).why_absent)


def absent(name: str) -> ModuleNotFoundError:
    """The error of an import that needs the real package."""
    return ModuleNotFoundError(
        "No module named 'azureml' that has %s: the package azureml-core is not installed in this Python, and Windrow "
        "offers only its public classes, of which Run, Model, Dataset, Datastore and Workspace do something" % name,
        name="azureml",
    )


def names_of(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: what the real one may have and this one has not."""

    top = module.split(".")[1] if module.startswith("azureml.") else ""
    other = OTHERS.get(top)

    def getattr_(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError("module %r has no attribute %r" % (module, name))
        if not name[0].isupper():
            if other is None:
                raise absent("%s.%s" % (module, name))
            return _function("%s.%s" % (module, name), other, does_nothing=top == "telemetry")
        if name in _HERE:
            from importlib import import_module

            # Not by its full name: `windrow_run_context` gives this package another one.
            return getattr(import_module("." + _HERE[name], __package__), name)
        known = name if other is None or name in _INSTEAD else "%s.%s" % (top, name)
        if known not in _made:
            _made[known] = _class(name, other or NONE)
        return _made[known]

    return getattr_


def install() -> None:
    """Lets `import` find the modules of the table where nothing else has found them."""
    sys.meta_path.append(_Finder())


class _Finder:
    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Raises ModuleNotFoundError for another module of these packages. None for all others."""
        if name in _NAMES:
            return ModuleSpec(name, _Loader(), is_package=name in _MODULES)  # type: ignore[arg-type]
        if name.startswith("azureml.") and name.split(".")[1] in OTHERS:
            return ModuleSpec(name, _Loader(), is_package=True)  # type: ignore[arg-type]
        if name.startswith(("azureml.core.", "azureml.data.")):
            raise absent(name)
        return None


class _Loader:
    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python make the module as any other."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(__all__=[], __getattr__=names_of(module.__name__))


def _function(name: str, why: str, does_nothing: bool) -> Callable[..., None]:
    def stand_in(*arguments: Any, **more: Any) -> None:
        """As that of the vendor's package. Raises RuntimeError, unless it only tells the vendor something."""
        if not does_nothing:
            raise RuntimeError("%s is not there in a script of Windrow: %s" % (name, why))

    return stand_in


def _class(name: str, why: str) -> type:
    space = {"__module__": "azureml.core", "__doc__": "As that of the vendor's package."}
    if name.endswith(("Error", "Exception")):
        return type(name, (AzureMLException,), space)
    if name.endswith("Authentication"):
        return Named(name, (_Credentials,), {**space, "why_absent": "there is nothing to sign in to"})
    return Named(name, (_StandIn,), {**space, "why_absent": _INSTEAD.get(name, why)})
