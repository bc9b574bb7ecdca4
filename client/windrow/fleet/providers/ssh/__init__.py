"""Agents on a list of machines, by OpenSSH: each machine has room for so many.

`settings` reads the keys of a group, `commands` runs ssh, `scripts` holds what runs on the machines, and `ssh_provider`
keeps the contract of providers.
"""

from __future__ import annotations

from windrow.fleet.provider import Kind
from windrow.fleet.providers.ssh.settings import read
from windrow.fleet.providers.ssh.ssh_provider import SshProvider, shown

KIND = Kind(read=read, make=SshProvider, show=shown)
