"""How many workers fit, as a dry run says it: on nodes of several kinds, by all that a worker takes."""

from __future__ import annotations

from typing import Any

import pytest
from windrow.dry_run.room import Room, need_words, room_document, workers_on
from windrow.spec import EffectiveStep

GIB = 1 << 30
SMALL = Room("small", 4, 8 * GIB, 0)
LARGE = Room("large", 16, 64 * GIB, 2, ("gpu",))


def step(**settings: Any) -> EffectiveStep:
    """A step with these settings."""
    return EffectiveStep("score", (), "", "score.py", {}, {}, {}, (), **settings)


@pytest.mark.parametrize(
    ("settings", "small", "large"),
    [
        ({}, 4, 16),
        ({"max_concurrency_per_instance": 3}, 3, 3),
        ({"max_concurrency_per_instance": 6}, 6, 6),  # they share the four slots
        ({"cpus_per_worker": 0.5}, 8, 32),
        ({"cpus_per_worker": 3}, 1, 5),
        ({"cpus_per_worker": 3, "max_concurrency_per_instance": 2}, 1, 2),
        ({"memory_per_worker": 3 * GIB}, 2, 16),
        ({"gpus_per_worker": 1}, 0, 2),
        ({"gpus_per_worker": 0.3}, 0, 6),  # three on a device, not six and two thirds on both
        ({"gpus_per_worker": 0.25, "memory_per_worker": 20 * GIB}, 0, 3),
    ],
)
def test_the_scarcest_resource_decides(settings: dict[str, Any], small: int, large: int) -> None:
    assert (workers_on(SMALL, step(**settings)), workers_on(LARGE, step(**settings))) == (small, large)


def test_pools_and_the_number_of_nodes_bound_where_workers_are() -> None:
    assert room_document(step(), [SMALL, LARGE])["workers"] == 20
    assert room_document(step(instance_count=1), [SMALL, LARGE])["nodes"] == [{"node": "large", "workers": 16}]
    assert room_document(step(compute="gpu"), [SMALL, LARGE])["workers"] == 20  # a node in no pool works on any step
    assert room_document(step(compute="cpu"), [SMALL, LARGE])["nodes"] == [{"node": "small", "workers": 4}]


@pytest.mark.parametrize(
    ("settings", "rooms", "words"),
    [
        (
            {"cpus_per_worker": 32.0},
            [SMALL, LARGE],
            "a worker needs 32 processors (cpus_per_worker), and no node has more than 16 processors",
        ),
        (
            {"gpus_per_worker": 0.5},
            [SMALL._replace(node="")],
            "a worker needs 0.5 GPUs (gpus_per_worker), and this machine has no GPU",
        ),
        (
            {"gpus_per_worker": 4},
            [LARGE],
            "a worker needs 4 GPUs (gpus_per_worker), and large has 2 GPUs",
        ),
        (
            {"cpus_per_worker": 8.0, "gpus_per_worker": 1},
            [SMALL, LARGE._replace(slots=4), Room("wide", 32, GIB, 0)],
            "a worker needs 8 processors and 1 GPU, and no node has all of that",
        ),
        ({"cpus_per_worker": 4.0}, [SMALL, LARGE], ""),
    ],
)  # fmt: skip
def test_what_is_lacking_is_told_in_numbers(settings: dict[str, Any], rooms: list[Room], words: str) -> None:
    assert room_document(step(**settings), rooms)["lacking"] == words


def test_what_a_worker_takes_is_one_phrase() -> None:
    taken = room_document(step(cpus_per_worker=1.0, memory_per_worker=GIB, gpus_per_worker=0.5), [LARGE])
    assert need_words(taken) == "1 processor, 1.1 GB of memory and 0.5 GPUs"
