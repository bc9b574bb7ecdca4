"""Turns a type given in an MLTable file into the worker's column."""

from __future__ import annotations

from windrow.spec.tables.columns import ColumnType
from windrow_worker.tables.columns import FALSE_WORDS, TRUE_WORDS, Column

_TYPES = {"int": "int", "float": "float", "string": "text", "boolean": "bool", "datetime": "datetime"}


def column_of(name: str, given: ColumnType) -> Column:
    """A column of the type that a user gave."""
    if given.type == "boolean":
        true_words = given.true_values if given.true_values is not None else TRUE_WORDS
        false_words = given.false_values if given.false_values is not None else FALSE_WORDS
        mismatch = {"error": None, "true": True, "false": False}[given.mismatch_as]
        return Column(name, "bool", true_words=true_words, false_words=false_words, mismatch=mismatch)
    return Column(name, _TYPES[given.type], formats=given.formats, date_constant=given.date_constant)
