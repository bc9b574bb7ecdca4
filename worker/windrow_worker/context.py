"""What ``run()`` is told about its mini-batch, as its second argument."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class MiniBatchContext:
    """``mini_batch_context`` (reference 3.3).

    ``minibatch_index``: identity of the mini-batch in its step, counted from 0, the same in every try.
    ``global_row_index_lower_bound``: index of its first item in the whole input, 0 where it is not known.
    ``partition_key_value``: values of the partition keys, in their order; None where the input is not cut by partition.
    ``dataset``: None, there are no dataset objects here; the mini-batch itself is the first argument.
    """

    __slots__ = ("dataset", "global_row_index_lower_bound", "minibatch_index", "partition_key_value")

    def __init__(
        self, minibatch_index: int, global_row_index_lower_bound: int, partition_key_value: Optional[Dict[str, Any]]
    ) -> None:
        self.minibatch_index = minibatch_index
        self.global_row_index_lower_bound = global_row_index_lower_bound
        self.partition_key_value = partition_key_value
        self.dataset: Any = None

    def __repr__(self) -> str:
        return (
            f"MiniBatchContext(minibatch_index={self.minibatch_index}, "
            f"global_row_index_lower_bound={self.global_row_index_lower_bound}, "
            f"partition_key_value={self.partition_key_value})"
        )
