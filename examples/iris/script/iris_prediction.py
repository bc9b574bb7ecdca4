"""Predicts the species of each flower of a mini-batch (a DataFrame) and returns a DataFrame."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import joblib
import pandas as pd

FEATURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]

model: Any


def init() -> None:
    """Called once in each worker process: loads what every mini-batch needs."""
    global model
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True, help="folder that holds model.joblib")
    args, _ = parser.parse_known_args()
    model = joblib.load(args.model / "model.joblib")


def run(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Called once for each mini-batch: one row out for each row in."""
    features = mini_batch[FEATURES].to_numpy(dtype=float)
    probabilities = model.predict_proba(features)
    return pd.DataFrame(
        {
            "flower": mini_batch["flower"],
            "species": model.classes_[probabilities.argmax(axis=1)],
            "confidence": probabilities.max(axis=1).round(4),
        }
    )
