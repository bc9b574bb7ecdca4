"""Writes the example's input and trains its model, from data that comes with scikit-learn.

Makes, beside this file:
    iris-mltable/iris.csv       150 flowers: an id and four measures in centimetres
    iris-model/model.joblib     a logistic regression, trained on every third flower
"""

from __future__ import annotations

from pathlib import Path

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

HERE = Path(__file__).resolve().parent
FEATURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]


def main() -> None:
    iris = load_iris(as_frame=True)
    table = iris.data.set_axis(FEATURES, axis=1)
    species = iris.target_names[iris.target]

    model = LogisticRegression(max_iter=1000).fit(table.to_numpy()[::3], species[::3])
    right = (model.predict(table.to_numpy()) == species).sum()

    table.insert(0, "flower", [f"F{number:03d}" for number in range(1, len(table) + 1)])
    table.to_csv(HERE / "iris-mltable" / "iris.csv", index=False, lineterminator="\n")
    model_folder = HERE / "iris-model"
    model_folder.mkdir(exist_ok=True)
    joblib.dump(model, model_folder / "model.joblib")
    print(f"iris: {len(table)} flowers written; the model names {right} of them correctly")


if __name__ == "__main__":
    main()
