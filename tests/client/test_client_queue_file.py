"""The file of queues: what it says, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow.spec.queue_file import load_queue_file
from windrow.spec.reading.problems import JobFileError

FILE = """\
queues:
  vision:
    weight: 2
    quota: 8
    limit: 16
    pools:
      gpu: {quota: 2, limit: 4.5}
  nightly: {priority: -10, admitted_jobs: 3}
  web:
"""


def test_a_file_says_what_differs_from_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "queues.yml"
    file.write_text(FILE)
    read = load_queue_file(file)
    assert not read.warnings
    assert read.queues == {
        "vision": QueueSettings(2.0, 0, Bounds(8.0, 16.0), {"gpu": Bounds(2.0, 4.5)}),
        "nightly": QueueSettings(priority=-10, admitted_jobs=3),
        "web": QueueSettings(),
    }


@pytest.mark.parametrize(
    "settings", [QueueSettings(), QueueSettings(2.5, 3, Bounds(1.5), {"gpu": Bounds(0.0, 4.0)}, 3)]
)
def test_settings_are_the_same_after_they_were_stored(settings: QueueSettings) -> None:
    assert QueueSettings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("- vision\n", "a file of queues is a mapping"),
        ("projects: {}\n", "queues"),
        ("queues: {vision: {weight: 0}}\n", "queues.vision.weight"),
        ("queues: {vision: {priority: 1.5}}\n", "queues.vision.priority"),
        ("queues:\n  vision: {quota: -1}\n", "queues.yml:2"),
        ("queues: {vision: {quota: 8, limit: 4}}\n", "is more than the limit, 4"),
        ("queues: {vision: {pools: {gpu: {quota: 8, limit: 4}}}}\n", "queues.vision.pools.gpu.quota"),
        ("queues: {vision: 8}\n", "it has to be a mapping"),
        ('queues: {"my team": {weight: 2}}\n', '"my team" is not a valid name of a project'),
        ("queues: {vision: {pools: {a/b: {quota: 1}}}}\n", '"a/b" is not a valid name of a pool'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "queues.yml"
    file.write_text(text)
    with pytest.raises(JobFileError) as caught:
        load_queue_file(file)
    assert said in str(caught.value)


def test_an_unknown_key_is_told(tmp_path: Path) -> None:
    file = tmp_path / "queues.yml"
    file.write_text("queues: {vision: {quotas: 8}}\n")
    (warning,) = load_queue_file(file).warnings
    assert "quotas" in str(warning) and "quota" in str(warning)
