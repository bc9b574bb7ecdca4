"""`windrow master` and `windrow setup`, which have programs and help of their own."""

from __future__ import annotations

import sys

from windrow.cli.cluster.programs import become
from windrow.cli.options.declared import command


@command(
    epilog="Example: windrow master --state /var/lib/windrow --listen 127.0.0.1:8470",
    short_help="Run a master, which owns the queue of mini-batches.",
)
def master() -> None:
    """Run a master, which owns the queue of mini-batches and gathers their rows. Options: windrow master --help"""
    become("master", sys.argv[2:])


@command(
    epilog="Example: windrow setup --folder /etc/windrow --name gpu1.example",
    short_help="Make certificates and tokens for a master and its agents.",
)
def setup() -> None:
    """Make certificates and tokens for a master, its agents and its clients. Options: windrow setup --help"""
    become("setup", sys.argv[2:])
