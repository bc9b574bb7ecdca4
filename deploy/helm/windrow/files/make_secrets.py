"""Makes the Secrets of a release with `windrow setup`: what is missing, and what ends soon.

Runs in the Job before each install and upgrade, with the master's image. The authority comes from its Secret if there
is one, so that it stays the same; a Secret is written only if something of it has changed.

Arguments: the beginning of the Secrets' names, then the names of the master.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("ACCOUNT_FOLDER", "/var/run/secrets/kubernetes.io/serviceaccount"))
ROLES = ("authority", "master", "agent", "client")
TIMEOUT_S = 30
NOT_FOUND = 404


def call(method: str, name: str, body: dict[str, object] | None = None) -> dict[str, object] | None:
    """One call about a Secret of the namespace. Returns None if it is not there."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    namespace = (ACCOUNT / "namespace").read_text().strip()
    url = f"https://{host}:{port}/api/v1/namespaces/{namespace}/secrets" + (f"/{name}" if name else "")
    headers = {
        "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers, method=method)
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust) as answer:
            found: dict[str, object] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND and method == "GET":
            return None
        sys.exit(f"{method} {url}: {error.read().decode(errors='replace')}")


def main(prefix: str, names: list[str]) -> None:
    """Make or renew the Secrets whose names begin with `prefix`."""
    stored = {role: call("GET", f"{prefix}-{role}") for role in ROLES}
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above, "windrow")
        for role, secret in stored.items():
            place = folder / role
            place.mkdir(mode=0o700, parents=True)
            for key, value in files_of(secret).items():
                (place / key).write_bytes(value)
                (place / key).chmod(0o600)
        words = ["windrow", "setup", "--folder", str(folder)]
        subprocess.run([*words, *(word for name in names for word in ("--name", name))], check=True)
        for role, secret in stored.items():
            write(f"{prefix}-{role}", secret, {file.name: file.read_bytes() for file in (folder / role).iterdir()})


def files_of(secret: dict[str, object] | None) -> dict[str, bytes]:
    """The content of a Secret."""
    data = (secret or {}).get("data") or {}
    assert isinstance(data, dict)
    return {key: base64.b64decode(value) for key, value in data.items()}


def write(name: str, secret: dict[str, object] | None, files: dict[str, bytes]) -> None:
    """Create a Secret, or change it if its content is another."""
    if secret is not None and files_of(secret) == files:
        print(f"Secret {name}: as it was", flush=True)
        return
    made: dict[str, object] = secret or {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    made["data"] = {key: base64.b64encode(value).decode() for key, value in files.items()}
    # With the version that was read: if somebody else has changed it meanwhile, this fails, and the Job tries again.
    call("POST" if secret is None else "PUT", "" if secret is None else name, made)
    print(f"Secret {name}: {'made' if secret is None else 'changed'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
