"""Writes the example's images and trains its model, from data that comes with scikit-learn.

Makes, beside this file:
    images/<class of hundred>/<number>.pgm    1,797 handwritten digits of 8 x 8 grey levels, one small file each
    digits-model/model.json                   weights of a logistic regression, trained on every second image
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

HERE = Path(__file__).resolve().parent


def write_pgm(path: Path, pixels: np.ndarray) -> None:
    """Writes grey levels 0..16 as a binary PGM image (netpbm's P5 format)."""
    height, width = pixels.shape
    path.write_bytes(f"P5\n{width} {height}\n16\n".encode() + pixels.astype(np.uint8).tobytes())


def main() -> None:
    digits = load_digits()
    for number, pixels in enumerate(digits.images):
        folder = HERE / "images" / f"{number // 100:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        write_pgm(folder / f"{number:04d}.pgm", pixels)

    scaled = digits.data / 16.0
    model = LogisticRegression(C=0.5, max_iter=2000).fit(scaled[::2], digits.target[::2])
    right = (model.predict(scaled) == digits.target).sum()
    model_folder = HERE / "digits-model"
    model_folder.mkdir(exist_ok=True)
    (model_folder / "model.json").write_text(
        json.dumps({"weights": model.coef_.tolist(), "biases": model.intercept_.tolist()}) + "\n"
    )
    print(f"digits: {len(digits.images)} images written; the model reads {right} of them correctly")


if __name__ == "__main__":
    main()
