"""Names the digit in each image file of a mini-batch (a list of paths) and returns a list of lines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from azureml_user.parallel_run import EntryScript

weights: np.ndarray
biases: np.ndarray
images_seen = 0


def init() -> None:
    """Called once in each worker process: loads what every mini-batch needs."""
    global weights, biases
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True, help="folder that holds model.json")
    args, _ = parser.parse_known_args()
    model = json.loads((args.model / "model.json").read_text())
    weights, biases = np.array(model["weights"]), np.array(model["biases"])
    EntryScript().logger.info("%s: model loaded from %s", EntryScript().agent_name, args.model)


def read_pgm(path: Path) -> np.ndarray:
    """Grey levels of a binary PGM image, scaled to 0..1, in one row."""
    magic, size, maximum, pixels = path.read_bytes().split(b"\n", 3)
    if magic != b"P5" or len(size.split()) != 2:
        raise ValueError(f"{path}: not a binary PGM image")
    return np.frombuffer(pixels, dtype=np.uint8) / float(maximum)


def run(mini_batch: list[str], mini_batch_context: Any) -> list[str]:
    """Called once for each mini-batch: one line out for each file in."""
    global images_seen
    images_seen += len(mini_batch)
    EntryScript().logger.info("mini-batch %s: %d images", mini_batch_context.minibatch_index, len(mini_batch))
    lines = []
    for name in mini_batch:
        scores = weights @ read_pgm(Path(name)) + biases
        likelihoods = np.exp(scores - scores.max())
        digit = int(likelihoods.argmax())
        lines.append(f"{Path(name).name},{digit},{likelihoods[digit] / likelihoods.sum():.4f}")
    return lines


def shutdown() -> None:
    """Called once in each worker process, at its end."""
    EntryScript().logger.info("%s: %d images in all", EntryScript().agent_name, images_seen)
