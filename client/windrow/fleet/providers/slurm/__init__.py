"""Agents from Slurm: each allocation is a batch job of one node whose script runs `windrow agent`.

`settings` reads the keys of a group, `batch_script` makes what sbatch is given, `commands` runs Slurm's commands,
`states` says what Slurm's states mean for an allocation, and `slurm_provider` keeps the contract of providers.
"""

from __future__ import annotations

from windrow.fleet.provider import Kind
from windrow.fleet.providers.slurm.batch_script import shown
from windrow.fleet.providers.slurm.settings import read
from windrow.fleet.providers.slurm.slurm_provider import SlurmProvider

KIND = Kind(read=read, make=SlurmProvider, show=shown)
