"""Principals: who makes the current call."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import NamedTuple

from windrow_master.core.ids import DEFAULT_PROJECT
from windrow_master.store.records import Role


def digest_of(secret: str) -> str:
    """What is kept of a token or a node's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class TokenRefused(Exception):
    """A token cannot be made, revoked or used. `reason` is a constant of windrow.rpc.errors."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Principal(NamedTuple):
    """Who makes a call, and what that allows."""

    name: str = ""
    """The name of its token; empty where the master asks for none."""
    role: Role = Role.ADMIN
    project: str = ""
    """The only project whose jobs it sees and changes; empty: all projects."""
    digest: str = ""
    """Of its token."""
    node: str = ""
    """The node that calls; empty: a client does. A node has no token, role or project."""

    @property
    def submits_to(self) -> str:
        """The project of the jobs that it submits, unless it names another."""
        return self.project or DEFAULT_PROJECT

    def sees(self, project: str) -> bool:
        """Whether it sees the jobs of a project."""
        return not self.project or self.project == project

    @property
    def sees_only(self) -> str:
        """A sentence, with the blank before it, for an answer that there is no such job; empty: it sees all jobs."""
        return f" The token {self.name!r} sees the jobs of the project {self.project} only." if self.project else ""


EVERYBODY = Principal()
"""Whoever reaches a master that asks for no client token."""

_caller: ContextVar[Principal] = ContextVar("caller", default=EVERYBODY)


def caller() -> Principal:
    """Who makes the current call."""
    return _caller.get()


def set_caller(principal: Principal) -> None:
    """Note who makes the current call: for its task, to the end of the call."""
    _caller.set(principal)
