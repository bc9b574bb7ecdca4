"""Runs at the start of Python processes that a script starts, and then what else has this name."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

import_module("windrow_run_context").install()

_HERE = os.path.dirname(os.path.abspath(__file__))
_OTHERS = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
_SPEC = PathFinder.find_spec(__name__, _OTHERS)
if _SPEC is not None and _SPEC.loader is not None:
    sys.modules[__name__] = module_from_spec(_SPEC)
    _SPEC.loader.exec_module(sys.modules[__name__])
