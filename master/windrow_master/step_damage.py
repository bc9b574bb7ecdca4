"""What is said of a damaged file of one step: the step fails, and everything else goes on."""

from __future__ import annotations

from windrow_master.store.errors import StateDamaged


class StepDamaged(StateDamaged):
    """A file that belongs to one step is not what was written to it."""

    def __init__(self, where: str, what: str) -> None:
        Exception.__init__(
            self,
            f"{where} is damaged: {what}. Nothing that fails its checksum is used, so the step cannot go on. Check "
            "that disk. Then run the job again with `--since` and the name of this one: the input is divided anew, and "
            "what is done is taken over. Or bring the state folder back from a backup.",
        )
        self.where = where
        self.what = what
