"""What every store keeps of tokens: each one by its digest, with its last use, and those that were revoked."""

from __future__ import annotations

import pytest
from store_groups import begun
from store_harness import StoreHarness
from windrow_master.core.records import NodeRow
from windrow_master.store.errors import OwnershipLost
from windrow_master.store.records import Role, TokenKind, TokenRow

CI = TokenRow("c" * 64, "ci", TokenKind.CLIENT, Role.SUBMIT, "vision", 5.5, expire_time=9.0)
RACK = TokenRow("a" * 64, "rack-1", TokenKind.JOIN, Role.NONE, "", 6.0, uses_left=3)


def test_tokens_outlive_their_store(harness: StoreHarness) -> None:
    store = harness.open()
    assert store.reader().tokens() == []
    store.record_token(RACK)
    store.record_token(CI)
    assert store.reader().tokens() == [CI, RACK]
    assert harness.open().reader().tokens() == [CI, RACK]


def test_a_token_with_the_same_digest_is_replaced(harness: StoreHarness) -> None:
    store = harness.open()
    for row in (CI, RACK, CI._replace(last_use=7.0), RACK._replace(uses_left=2), CI._replace(revoke_time=8.0)):
        store.record_token(row)
    assert store.reader().tokens() == [CI._replace(revoke_time=8.0), RACK._replace(uses_left=2)]


def test_two_tokens_may_have_had_one_name(harness: StoreHarness) -> None:
    store = harness.open()
    again = CI._replace(digest="d" * 64, create_time=7.0)
    store.record_token(CI._replace(revoke_time=6.0))
    store.record_token(again)
    assert store.reader().tokens() == [CI._replace(revoke_time=6.0), again]


def test_an_older_incarnation_records_no_token(harness: StoreHarness) -> None:
    older, newer = harness.open(), harness.open_beside()
    with pytest.raises(OwnershipLost):
        older.record_token(CI)
    assert newer.reader().tokens() == []


def test_who_submitted_a_job_and_what_a_node_proves_itself_by_are_kept(harness: StoreHarness) -> None:
    store = harness.open()
    group = begun()
    group.jobs = [job._replace(submitter="ci", queue="vision") for job in group.jobs]
    group.nodes = [NodeRow("node-1", "a", 1, "", b"{}", b"{}", 1.0, 0, "e" * 64)]
    store.commit(group, [], [])
    for snapshot in (store.load(), harness.open().load()):
        assert snapshot.jobs == group.jobs and snapshot.nodes == group.nodes
