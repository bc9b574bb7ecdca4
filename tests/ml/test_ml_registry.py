"""Data assets and models by `MLClient`: registered with the master, named in jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from windrow.errors import NotFound, UsageError
from windrow.ml import Input, MLClient, Output
from windrow.ml.dsl import pipeline
from windrow.ml.entities import Data, Model
from windrow.ml.parallel import RunFunction, parallel_run_function


def test_assets_are_registered_found_and_named_in_jobs(notebook: Path) -> None:
    score = parallel_run_function(
        name="score",
        inputs={"files": Input(type="uri_folder"), "model": Input(type="uri_file")},
        outputs={"rows": Output(type="uri_file")},
        input_data="${{inputs.files}}",
        task=RunFunction(
            code="./src",
            entry_script="score.py",
            program_arguments="--model ${{inputs.model}} --factor 2",
            append_row_to="${{outputs.rows}}",
        ),
    )

    @pipeline()
    def job(files: Any, model: Any) -> None:
        score(files=files, model=model).outputs.rows.path = "./rows.txt"

    with MLClient(slots=1) as client:
        first = client.data.create_or_update(Data(name="letters", path="./files", tags={"a": "b"}))
        assert (first.name, first.version, first.tags) == ("letters", "1", {"a": "b"})
        (notebook / "more").mkdir()
        assert client.data.create_or_update(Data(name="letters", path="./more")).version == "2"
        client.models.create_or_update(Model(name="m", path="./model.txt", version="7"))
        assert [data.version for data in client.data.list("letters")] == ["2", "1"]
        assert client.models.get("m", label="latest").version == "7"
        with pytest.raises(NotFound):
            client.data.get("numbers")
        with pytest.raises(UsageError, match="needs a path"):
            client.data.create_or_update(Data(name="nothing"))
        named = job(files=client.data.get("letters", "1"), model=Input(type="uri_file", path="azureml:m@latest"))
        assert client.jobs.validate(named).loaded.job == named.load(assets=client.windrow.asset_lookup).job
        submitted = client.jobs.create_or_update(named)
        client.windrow.wait(submitted.name)
    assert (notebook / "rows.txt").read_text() == "a.txt m1 2\nb.txt m1 2\nc.txt m1 2\n"
