"""What lies outside a served master's datastores: not read, not written, whatever links and MLTable files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_run import DEADLINE_S
from served import Served
from upload_bench import FILES, MLTABLE, Laptop, fill, uploads_of
from windrow.errors import RequestRefused, WindrowError
from windrow.sdk.job import JobState
from windrow.spec import JobFileError, load_job


@pytest.mark.parametrize(
    ("entry", "error", "said"),
    [
        ("file: ../outside.csv", JobFileError, "points outside the folder of the MLTable file"),
        ("pattern: ../*.csv", JobFileError, "points outside the folder of the MLTable file"),
        ("file: /etc/passwd", RequestRefused, r"paths\[0\].file of its MLTable file: /etc/passwd is outside"),
        ("pattern: /etc/*.conf", RequestRefused, r"paths\[0\].pattern of its MLTable file: /etc is outside"),
        (
            "folder: azureml://datastores/nope/paths/x/",
            RequestRefused,
            r"Step 'score', input 'data', paths\[0\].folder of its MLTable file: azureml://.* datastore 'nope', which",
        ),
    ],
)
def test_an_mltable_that_names_what_is_elsewhere(
    served: Served, tmp_path: Path, entry: str, error: type[Exception], said: str
) -> None:
    table = f"paths: [{{{entry}}}]\ntransformations: [read_delimited]\n".encode()
    laptop = Laptop(tmp_path / "laptop", {"MLTable": table}, "mltable")
    fill(laptop.folder, {"outside.csv": b"a\n1\n"})
    with served.client() as client, pytest.raises(error, match=said):
        client.submit(laptop.job)


def test_the_masters_own_mltable_that_leads_out_is_refused(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    laptop = Laptop(tmp_path / "laptop", FILES, "mltable", str(served.datastore / "table"))
    fill(served.datastore, {"table/MLTable": b"paths: [{file: ../../secret.csv}]\ntransformations: [read_delimited]\n"})
    fill(served.datastore.parent, {"secret.csv": b"a\n1\n"})
    with served.client() as client, pytest.raises(RequestRefused, match=r"secret\.csv is outside the datastores"):
        client.submit(laptop.job)


@pytest.mark.parametrize("what", ["file", "folder", "mltable", "table"])
def test_a_link_in_a_datastore_that_leads_out_ends_the_job(served: Served, tmp_path: Path, what: str) -> None:
    assert served.datastore is not None
    data = fill(served.datastore / "data", {"good.csv": b"a\n1\n", "sub/good.csv": b"a\n2\n"})
    fill(tmp_path / "secret", {"secret.csv": b"top,secret\n1,2\n", "MLTable": MLTABLE})
    link, target = {
        "file": ("sub/z.csv", "secret.csv"),
        "folder": ("sub/z", "."),
        "mltable": ("MLTable", "MLTable"),
        "table": ("sub/z.csv", "secret.csv"),
    }[what]
    (data / "inside.csv").symlink_to("good.csv")
    laptop = Laptop(tmp_path / "laptop", FILES, "mltable" if what in ("mltable", "table") else "uri_folder", str(data))
    (data / link).symlink_to(tmp_path / "secret" / target)
    with served.client() as client:
        if what == "mltable":
            with pytest.raises(RequestRefused, match="MLTable is outside the datastores"):
                client.submit(laptop.job)
            return
        job = client.wait(client.submit(laptop.job).job_id, timeout_s=DEADLINE_S, check=False)
        assert job.state is JobState.FAILED
        assert f"{data / link} of the input leads to {(tmp_path / 'secret' / target).resolve()}" in job.message
        assert "outside the datastores" in job.message
        assert "top" not in job.message
        (data / link).unlink()
        served.start_agent("one")
        assert client.wait(client.submit(laptop.job).job_id, timeout_s=DEADLINE_S).state is JobState.COMPLETED


def test_an_output_by_way_of_a_link_that_was_laid_later_is_not_written(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    laptop = Laptop(tmp_path / "laptop", FILES)
    first = laptop.job.read_text()
    second = first[first.index("  score:") :].replace("  score:", "  second:").replace("result}}", "second}}")
    second = second.replace("{result:", "{second:").replace(
        "${{parent.inputs.data}}", "${{parent.jobs.score.outputs.result}}"
    )
    place = served.datastore / "place"
    laptop.job.write_text(first + second.replace("{type: uri_file}", f"{{type: uri_file, path: {place}/rows.txt}}"))
    with served.client() as client:
        job_id = client.submit(laptop.job).job_id
        place.symlink_to(tmp_path)
        served.start_agent("one")
        job = client.wait(job_id, timeout_s=DEADLINE_S, check=False)
    assert job.state is JobState.FAILED
    assert f"{place}/rows.txt leaves the datastores" in job.message
    assert not (tmp_path / "rows.txt").exists()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/uploads/x/rows.txt", "is in .*/uploads,"),
        ("/.models", "is in .*/.models,"),
        ("/partitions/a", "is in .*/partitions,"),
        ("/link/rows.txt", "is in .*/.models,"),
        ("", "holds .*/.models,"),
        ("/.models/${{name}}", "is in .*/.models,"),
    ],
)
def test_no_job_writes_among_what_the_master_keeps_for_all(
    served: Served, tmp_path: Path, place: str, said: str
) -> None:
    """Uploads, models and sorted rows: at, below and above them."""
    assert served.datastore is not None
    (served.datastore / "link").symlink_to(served.datastore / ".models")
    laptop = Laptop(tmp_path / "laptop", FILES)
    sets = [f"jobs.score.outputs.result.path={served.datastore}{place}"]
    with served.client() as client, pytest.raises(RequestRefused, match=said + " which the master keeps for all jobs"):
        client.submit(laptop.job, sets=sets)


@pytest.mark.parametrize(("place", "said"), [("", "holds .*/.models,"), ("/inner/.models/x", "is in .*/.models,")])
def test_what_the_master_keeps_is_closed_also_by_a_datastore_that_holds_the_default_one(
    tmp_path: Path, place: str, said: str
) -> None:
    outer = tmp_path / "outer"
    (outer / "inner").mkdir(parents=True)
    served = Served(tmp_path, outer / "inner")
    try:
        served.start_master(f"--datastore=outer={outer}")
        laptop = Laptop(tmp_path / "laptop", FILES)
        sets = [f"jobs.score.outputs.result.path=azureml://datastores/outer/paths{place}/"]
        with served.client() as client, pytest.raises(RequestRefused, match=said + " which the master keeps for all"):
            client.submit(laptop.job, sets=sets)
    finally:
        served.close()


def test_a_link_to_models_that_was_laid_later_is_no_output(served: Served, tmp_path: Path) -> None:
    """Nor what a name in the path leads to: both are known only when the step begins."""
    assert served.datastore is not None
    laptop = Laptop(tmp_path / "laptop", FILES)
    first = laptop.job.read_text()
    second = first[first.index("  score:") :].replace("  score:", "  second:").replace("result}}", "second}}")
    second = second.replace("{result:", "{second:").replace(
        "${{parent.inputs.data}}", "${{parent.jobs.score.outputs.result}}"
    )
    place = served.datastore / "place"
    laptop.job.write_text(first + second.replace("{type: uri_file}", f"{{type: uri_file, path: {place}/rows.txt}}"))
    models = served.datastore / ".models"
    models.mkdir()
    with served.client() as client:
        job_id = client.submit(laptop.job).job_id
        place.symlink_to(models)
        served.start_agent("one")
        job = client.wait(job_id, timeout_s=DEADLINE_S, check=False)
    assert job.state is JobState.FAILED
    assert f"{models}/rows.txt is in {models}, which the master keeps for all jobs" in job.message
    assert not (models / "rows.txt").exists()


@pytest.mark.parametrize("uploads", [True, False], ids=["looked at before uploads", "looked at by the master"])
def test_a_path_of_the_masters_that_is_wrong_is_told_when_the_job_is_submitted(
    served: Served, tmp_path: Path, uploads: bool
) -> None:
    assert served.datastore is not None
    absent = served.datastore / "absent"
    laptop = Laptop(tmp_path / "laptop", FILES, path=str(absent))
    if not uploads:
        fill(served.datastore, {"side.txt": b"!"})
        laptop.job.write_text(laptop.job.read_text().replace("./side.txt", str(served.datastore / "side.txt")))
    with served.client() as client:
        with pytest.raises(WindrowError, match=f"input 'data': {absent} does not exist on the"):
            client.submit(laptop.job)
        assert not uploads_of(served)
        assert not list(client.list_jobs())


def test_an_output_that_cannot_be_written_is_told_when_the_job_is_submitted(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    fill(served.datastore, {"file": b""})
    laptop = Laptop(tmp_path / "laptop", FILES)
    target = served.datastore / "file" / "below" / "rows.txt"
    with (
        served.client() as client,
        pytest.raises(RequestRefused, match=f"cannot write to {target}: {served.datastore}/file is not a folder"),
    ):
        client.submit(load_job(laptop.job, [f"jobs.score.outputs.result.path={target}"], embedded=False))
