"""A served master: can it be reached and trusted, does it accept the token, and how are its nodes?"""

from __future__ import annotations

import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import windrow
from windrow.common.quantities import counted, size
from windrow.doctor.findings import FAIL, OK, WARN, Finding
from windrow.errors import MasterUnreachable, RequestRefused, WindrowError
from windrow.rpc.certificates import NEW_AUTHORITY, RENEW, WARN_DAYS, days_left
from windrow.rpc.contexts import Access
from windrow.rpc.tls import tls_fault
from windrow.sdk.client import Client
from windrow.sdk.node import Node

AREA = "Master"
PATIENCE_S = 5.0
NODE_ROOM_BYTES = 1 << 30


def check(access: Access) -> Iterator[Finding]:
    """All findings of this area."""
    if not access.address.startswith("unix:"):
        reached = _reach(access)
        yield reached
        if reached.level == FAIL:
            return
        if access.ca:
            certificate = _certificate(access)
            yield certificate
            if certificate.level == FAIL:
                return
        elif _is_here(access.address):
            yield Finding(AREA, "TLS", OK, "none; nothing leaves this machine")
        else:
            advice = "Others can read what is sent. Run windrow setup (docs/how-to/use-tls-and-tokens.md)."
            yield Finding(AREA, "TLS", WARN, "none", advice)
    try:
        with Client(access=access, patience_s=PATIENCE_S) as client:
            yield from _ask(client, access)
    except RequestRefused as error:
        advice = "Copy its context again (windrow context export where it works, windrow context add here)."
        yield Finding(AREA, "token", FAIL, str(error), advice)
    except WindrowError as error:
        advice = "" if isinstance(error, MasterUnreachable) else "Its log, master.log in its state folder, says more."
        yield Finding(AREA, "answer", FAIL, str(error), advice)


def _reach(access: Access) -> Finding:
    host, _, port = access.address.rpartition(":")
    begin = time.monotonic()
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        advice = (
            "Check that it is running, that the address is right, and that no firewall blocks it. windrow master --help"
        )
        return Finding(AREA, "address", FAIL, f"{access.address} cannot be reached: {error.strerror or error}", advice)
    return Finding(AREA, "address", OK, f"{access.address}, reached in {1000 * (time.monotonic() - begin):.0f} ms")


def _certificate(access: Access) -> Finding:
    host, _, port = access.address.rpartition(":")
    host = host.strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=access.ca)
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            told = secure.getpeercert()
    except ssl.SSLCertVerificationError as error:
        said = error.verify_message
        words = "Hostname Verification Check failed" if "mismatch" in said else f"CERTIFICATE_VERIFY_FAILED {said}"
        return Finding(AREA, "TLS", FAIL, said, tls_fault(words, access.address))
    except OSError as error:
        why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        return Finding(AREA, "TLS", FAIL, f"no TLS connection: {why}", tls_fault(str(why), access.address))
    ends = ssl.cert_time_to_seconds(str((told or {}).get("notAfter")))
    days = days_left(ends, time.time())
    seen = f"certificate trusted, good until {datetime.fromtimestamp(ends, UTC):%Y-%m-%d} ({counted(days, 'day')} left)"
    if days < WARN_DAYS:
        return Finding(AREA, "TLS", WARN, seen, RENEW)
    return Finding(AREA, "TLS", OK, seen)


def _ask(client: Client, access: Access) -> Iterator[Finding]:
    master = client.master()
    yield Finding(AREA, "token", OK, "accepted" if access.token else "none sent, and none required")
    if master.windrow_version == windrow.__version__:
        yield Finding(
            AREA, "version", OK, f"{master.windrow_version}, the same as here; incarnation {master.incarnation}"
        )
    else:
        advice = "Use the same version on both sides: install that one here, or upgrade the master."
        seen = f"{master.windrow_version}, and {windrow.__version__} here"
        yield Finding(AREA, "version", WARN, seen, advice)
    if master.read_only_reason:
        advice = "Free some space on the disk of its state folder; the master then resumes automatically."
        yield Finding(AREA, "disk", FAIL, f"it accepts no changes: {master.read_only_reason}", advice)
    else:
        yield Finding(AREA, "disk", OK, "it accepts changes")
    places = ", ".join(f"{name}={place}" for name, place in sorted(master.datastores.items()))
    if "default" in master.datastores or master.embedded:
        yield Finding(AREA, "datastores", OK, places or "none; it is embedded, and absolute paths are allowed")
    else:
        advice = "Data of other machines and outputs without a path need one: windrow master --datastore default=PATH."
        yield Finding(AREA, "datastores", WARN, places or "none", advice)
    yield from _nodes(list(client.list_nodes()), master.windrow_version)


UNPROTECTED = ("auto (", "given (", "strict (")
"""How the words of a node begin that confines scripts less than it should."""


def _nodes(nodes: list[Node], version: str) -> Iterator[Finding]:
    by_state = Counter("cordoned" if node.cordoned and node.state == "ready" else node.state for node in nodes)
    seen = ", ".join(f"{count} {state}" for state, count in sorted(by_state.items())) or "none"
    if by_state["ready"]:
        slots = sum(node.slots for node in nodes if node.state == "ready" and not node.cordoned)
        yield Finding(AREA, "nodes", OK, f"{seen}; {counted(slots, 'worker')} at a time")
    else:
        advice = "Jobs wait. Start one (windrow agent --master ADDRESS), or list the existing ones: windrow node list"
        yield Finding(AREA, "nodes", WARN, f"{seen}: none takes work", advice)
    for node in nodes:
        if node.state in ("quarantined", "disconnected"):
            yield Finding(AREA, f"node {node.node_id}", WARN, f"{node.state}: {node.message}", "windrow node list")
        elif node.state == "ready" and node.message:
            yield Finding(AREA, f"node {node.node_id}", WARN, node.message, "Look at that node, or cordon it.")
        if node.disk_free_bytes is not None and node.disk_free_bytes < NODE_ROOM_BYTES:
            free = f"{size(node.disk_free_bytes)} free in its folder"
            yield Finding(
                AREA, f"node {node.node_id}", WARN, free, "Free some space there; it holds fetched data and large rows."
            )
        if troubles := [f"GPU {at} ({gpu.device}): {gpu.trouble}" for at, gpu in enumerate(node.gpus) if gpu.trouble]:
            advice = "It gives workers its other GPUs."
            yield Finding(AREA, f"node {node.node_id}", WARN, f"GPUs cannot be used: {'; '.join(troubles)}", advice)
        elif node.gpu_trouble:
            seen = f"not all of its GPUs can be seen, used or measured: {node.gpu_trouble}"
            yield Finding(
                AREA, f"node {node.node_id}", WARN, seen, "Workers get those that it names: windrow node list"
            )
        if node.ca_good_until is not None and days_left(node.ca_good_until.timestamp(), time.time()) < WARN_DAYS:
            seen = f"the authority by which it knows the master expires on {node.ca_good_until:%Y-%m-%d}"
            yield Finding(AREA, f"node {node.node_id}", WARN, seen, NEW_AUTHORITY)
        if node.protection.startswith(UNPROTECTED):
            advice = "docs/how-to/confine-scripts.md says what each kernel and each folder of an agent allows."
            yield Finding(AREA, f"node {node.node_id}", WARN, f"sandbox {node.protection}", advice)
        if node.windrow_version and node.windrow_version != version:
            seen = f"has {node.windrow_version}, the master {version}"
            yield Finding(AREA, f"node {node.node_id}", WARN, seen, "Upgrade the older one.")


def _is_here(address: str) -> bool:
    return address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")
