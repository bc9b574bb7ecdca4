"""What successive Steps with one step id share on this node, for a bounded number of step ids.

Invariants:

1. Of steps that are not on this node, at most about KEPT are remembered: those with the highest ids.
2. A forgotten step that comes back uses no process number again, and no folder.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow.rpc.v1 import agent_service_pb2 as rpc

if TYPE_CHECKING:
    from windrow_agent.workers.capture import LogFile

KEPT = 1000


@dataclass(slots=True, eq=False)
class Lineage:
    """What successive Steps with one step id share on this node.

    `opened`: how many there were. `next_process`: the next process number. `node_logs`: the newest log of each kind
    that belongs to the node.
    """

    opened: int = 0
    next_process: int = 0
    node_logs: dict[rpc.LogKind.ValueType, LogFile] = field(default_factory=dict)

    def number(self) -> int:
        """Takes the next process number."""
        self.next_process += 1
        return self.next_process - 1


class Lineages:
    """The lineages by step id. A master counts step ids up, so an id above all forgotten ones belongs to a new step."""

    def __init__(self) -> None:
        self._kept: dict[int, Lineage] = {}
        self._forgotten_up_to = -1
        self._forgotten = Lineage()
        """As far as any forgotten one has come. A step that may be one of them continues there; its logs of the node
        then begin after the longest, after a gap, so that they overwrite nothing."""

    def of(self, step_id: int, in_use: Container[int]) -> Lineage:
        """The lineage of a step. `in_use`: the ids of steps on this node, which are not forgotten."""
        if step_id not in self._kept:
            if len(self._kept) >= 2 * KEPT:
                self._forget_oldest(in_use)
            known = self._forgotten if step_id <= self._forgotten_up_to else Lineage()
            self._kept[step_id] = Lineage(known.opened, known.next_process, dict(known.node_logs))
        return self._kept[step_id]

    def forget_logs(self, step_id: int) -> None:
        """The master has no logs under this step id: the next ones start again."""
        if step_id in self._kept:
            self._kept[step_id].node_logs.clear()

    def _forget_oldest(self, in_use: Container[int]) -> None:
        largest = self._forgotten
        for step_id in sorted(self._kept)[:-KEPT]:
            if step_id in in_use:
                continue
            lineage = self._kept.pop(step_id)
            self._forgotten_up_to = max(self._forgotten_up_to, step_id)
            largest.opened = max(largest.opened, lineage.opened)
            largest.next_process = max(largest.next_process, lineage.next_process)
            for kind, log in lineage.node_logs.items():
                longest = largest.node_logs.get(kind)
                if longest is None or log.file.length > longest.file.length:
                    largest.node_logs[kind] = log
