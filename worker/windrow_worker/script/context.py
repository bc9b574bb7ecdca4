"""The arguments of `run()`: a mini-batch that is a list, and the context."""

from __future__ import annotations

import operator

from windrow_worker import failures
from windrow_worker.splitting import FailedItems, piece_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

    from windrow_worker.loaded import Loader


MARKS_MAX = 5_000
"""How many items of one mini-batch may be marked as failed."""


class MiniBatch(list):  # type: ignore[type-arg]  # Python 3.8 cannot subscript it here
    """A mini-batch of paths or dicts: a list that knows its index.

    Not the client's `MiniBatch`, which says what became of one.

    `task_id`: the same as `minibatch_index` of the context; scripts whose `run()` takes one argument name files by it.
    Pickled or copied, it becomes a plain list, so that it can go to processes without this class.
    """

    __slots__ = ("task_id",)

    def __init__(self, items: Iterable[Any], task_id: int) -> None:
        super().__init__(items)
        self.task_id = task_id

    def __getattr__(self, name: str) -> Any:
        """Nothing: a script that asks for a column or a method of a DataFrame is told what it got."""
        raise AttributeError(
            f"'MiniBatch' object has no attribute {name!r}: run() got a list. It gets a DataFrame where the input is a "
            "table (type: mltable in the job file; --as table without one)"
        )

    def __reduce__(self) -> Tuple[type, Tuple[List[Any]]]:
        return list, (list(self),)


class MiniBatchDataset:
    """A mini-batch as a data set: the part of Azure ML's data set objects that Windrow has.

    It does not hold data: each call reads the input again.
    """

    __slots__ = ("_loader", "_piece", "_recipe")

    def __init__(self, loader: Loader, recipe: bytes, piece: Optional[Tuple[int, int]] = None) -> None:
        """`piece`: the items of the recipe that it has, as (first, count); all if None."""
        self._loader = loader
        self._recipe = recipe
        self._piece = piece

    def _load(self) -> Any:
        value = self._loader.load(self._recipe).value
        return value if self._piece is None else piece_of(value, *self._piece)

    def to_path(self) -> List[str]:
        """The paths of the files, as `run()` gets them. Raises TypeError if the input is a table."""
        value = self._load()
        if isinstance(value, list) and all(isinstance(path, str) for path in value):
            return value
        raise TypeError(
            "to_path() is for inputs that are lists of files; this one is a table: use to_pandas_dataframe()"
        )

    def to_pandas_dataframe(self) -> Any:
        """The records as a DataFrame. Raises TypeError if the input is a list of files."""
        value = self._load()
        if not isinstance(value, list):
            return value
        if value and isinstance(value[0], dict):
            import pandas

            return pandas.DataFrame(value)
        raise TypeError("to_pandas_dataframe() is for tables; this input is a list of files: use to_path()")

    def __repr__(self) -> str:
        return "MiniBatchDataset()"


class MiniBatchContext:
    """`mini_batch_context` (docs/reference/azure-ml/parallel-job.md#mini-batch-context).

    - `minibatch_index`: the index of the mini-batch in its step, from 0, the same in every try.
    - `retry_count`: how many tries there were before, however they ended.
    - `global_row_index_lower_bound`: the index of its first item in the whole input. None if that is not known, as for
      text tables without `--exact_row_index True`.
    - `partition_key_value`: the values of the partition keys, in order; None if the input is not divided by them.
    - `dataset`: the mini-batch as a `MiniBatchDataset`.
    - `fail(item, message)`: marks an item as failed. Windrow's own.
    """

    __slots__ = (
        "_loader",
        "_marks",
        "_mini_batch",
        "_piece",
        "_recipe",
        "global_row_index_lower_bound",
        "minibatch_index",
        "partition_key_value",
        "retry_count",
    )

    def __init__(
        self,
        minibatch_index: int,
        retry_count: int,
        global_row_index_lower_bound: Optional[int],
        partition_key_value: Optional[Dict[str, Any]],
        loader: Loader,
        recipe: bytes,
        mini_batch: Any,
        piece: Optional[Tuple[int, int]] = None,
    ) -> None:
        """`mini_batch`: what `run()` gets. `piece`: which items of the recipe, as (first, count); all if None."""
        self.minibatch_index = minibatch_index
        self.retry_count = retry_count
        self.global_row_index_lower_bound = global_row_index_lower_bound
        self.partition_key_value = partition_key_value
        self._loader = loader
        self._recipe = recipe
        self._mini_batch = mini_batch
        self._piece = piece
        self._marks: Dict[int, str] = {}

    def fail(self, item: Any, message: str) -> None:
        """Marks an item as failed, without raising: the others of its mini-batch count, and it is not tried again.

        `item`: its place in the mini-batch, counted from 0; of a list, also the item itself. Return no row for it.
        `message`: why, for people; `failed_items.csv` has it. Raises ValueError or IndexError if there is no such item.
        """
        at = self._place(item)
        if at not in self._marks and len(self._marks) >= MARKS_MAX:
            raise ValueError(f"more than {MARKS_MAX:,} items of one mini-batch were marked as failed")
        self._marks[at] = str(message)

    def _place(self, item: Any) -> int:
        mini_batch = self._mini_batch
        try:
            at = operator.index(item)
        except TypeError:
            if isinstance(mini_batch, list):
                return mini_batch.index(item)
            raise TypeError(
                f"fail() takes the place of a row in the mini-batch, counted from 0, not {type(item).__name__}"
            ) from None
        if not 0 <= at < len(mini_batch):
            raise IndexError(f"fail({at}): the mini-batch has {len(mini_batch):,} items, counted from 0")
        return at

    def take_marks(self) -> List[FailedItems]:
        """For the host: the items that were marked, in order. The mini-batch is let go."""
        self._mini_batch = ()
        marks, self._marks = self._marks, {}
        begin = 0 if self._piece is None else self._piece[0]
        return [FailedItems(begin + at, 1, failures.MARKED, marks[at]) for at in sorted(marks)]

    @property
    def dataset(self) -> MiniBatchDataset:
        """The mini-batch as a data set."""
        return MiniBatchDataset(self._loader, self._recipe, self._piece)

    def __repr__(self) -> str:
        return (
            f"MiniBatchContext(minibatch_index={self.minibatch_index}, retry_count={self.retry_count}, "
            f"global_row_index_lower_bound={self.global_row_index_lower_bound}, "
            f"partition_key_value={self.partition_key_value})"
        )
