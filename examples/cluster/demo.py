"""Starts a cluster in containers, runs a job, and kills its master in the middle: `make demo-cluster`.

Every command is shown before it runs; you can type all of them by hand. Everything that was started is removed at the
end.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NUMBERS = 2000
AGENTS = 4
BASE_IMAGE = "python:3.11-slim-bookworm"


def succeeds(*command: str) -> bool:
    """Whether a command exists and succeeds. Its output is discarded."""
    return shutil.which(command[0]) is not None and not subprocess.call(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def compose() -> list[str]:
    """The command of Compose. Ends the demo if there is none, or no Docker engine."""
    if not succeeds("docker", "info"):
        sys.exit("make demo-cluster needs Docker, and no engine answers here. `make demo` runs without.")
    for command in (["docker", "compose"], ["docker-compose"]):
        if succeeds(*command, "version"):
            return command
    sys.exit("make demo-cluster needs Docker Compose: neither `docker compose` nor `docker-compose` is installed.")


def show(*command: str) -> None:
    """Print a command as you would type it."""
    print(f"\n$ {shlex.join(command)}", flush=True)


def run(*command: str) -> None:
    """Show and run a command. The demo ends if it fails."""
    show(*command)
    subprocess.run(command, cwd=ROOT, check=True)


def need_base_image() -> None:
    """Make sure that the base image exists: pull it, or make it from Debian packages."""
    found = subprocess.run(["docker", "images", "-q", BASE_IMAGE], capture_output=True, text=True, check=True).stdout
    if not found and not succeeds("docker", "pull", "-q", BASE_IMAGE):
        print(f"{BASE_IMAGE} cannot be pulled; making it from Debian packages.")
        run("docker/base-image")


def make_numbers() -> Path:
    """Make the input: files with one number each, larger ones last."""
    folder = HERE / "numbers"
    folder.mkdir(exist_ok=True)
    for number in range(NUMBERS):
        (folder / f"{number:04d}.txt").write_text(str(50_000 + 40 * number))
    return folder


def main() -> None:
    docker_compose = compose()
    os.environ.setdefault("COMPOSE_PROJECT_NAME", "windrow-demo")
    # Keep the demo's context apart from those of the user.
    os.environ["WINDROW_CONTEXTS"] = str(ROOT / "build" / "demo-contexts.json")
    for name in ("WINDROW_MASTER", "WINDROW_STATE"):
        os.environ.pop(name, None)
    windrow_command = str(Path(sys.executable).with_name("windrow"))
    need_base_image()
    numbers = make_numbers()
    try:
        run(*docker_compose, "build", "--quiet")
        began = time.monotonic()
        show("export", f"WINDROW_AGENTS={AGENTS}")
        os.environ["WINDROW_AGENTS"] = str(AGENTS)
        run(*docker_compose, "up", "-d")
        # Remove images that the build has replaced and nothing uses: docs/how-to/free-disk-space.md.
        run("docker", "image", "prune", "--force", "--filter", "label=org.opencontainers.image.title=windrow")
        export = [*docker_compose, "run", "--rm", "-T", "client", "context", "export"]
        show(*export, "|", "windrow", "context", "add", "demo", "-")
        exported = subprocess.check_output(export, cwd=ROOT, stderr=subprocess.DEVNULL)
        subprocess.run([windrow_command, "context", "add", "demo", "-"], input=exported, check=True)
        import windrow

        with windrow.Client(patience_s=60) as client:
            while sum(node.state == "ready" for node in client.list_nodes()) < AGENTS:
                time.sleep(0.1)
        print(f"{AGENTS} agents are ready, {time.monotonic() - began:.1f} s after `up`.")
        show("windrow", "job", "create", "examples/cluster/job.yml", "--stream")
        stream = subprocess.Popen([windrow_command, "job", "create", str(HERE / "job.yml"), "--stream"], cwd=ROOT)
        with windrow.Client() as client:
            while not (job := next(client.list_jobs(), None)) or job.items.ended < NUMBERS // 4:
                time.sleep(0.05)
        print(f"\n{job.items.ended} of {NUMBERS} items are done. Now the master is killed, and an agent with it:")
        run(*docker_compose, "exec", "-T", "master", "sh", "-c", "kill -9 -1")
        run(*docker_compose, "exec", "-T", "--user", "1000", "agent", "sh", "-c", "kill -9 -1")
        if stream.wait() != 0:
            sys.exit("the job did not end well")
        fetched = ROOT / "build" / "demo-rows"
        shutil.rmtree(fetched, ignore_errors=True)
        show("windrow", "job", "download", job.job_id, "--to", "build/demo-rows")
        subprocess.run([windrow_command, "job", "download", job.job_id, "--to", str(fetched)], check=True)
        rows = (fetched / "primes" / "parallel_run_step.txt").read_text().splitlines()
        expected = sorted(file.stem for file in numbers.iterdir())
        assert [row.split(",")[0] for row in rows] == expected, "rows are missing, or there twice"
        print(f"\n{len(rows)} rows, each once, in the order of the input. The last: {rows[-1]}")
    finally:
        run(*docker_compose, "down", "-v", "-t", "15")


if __name__ == "__main__":
    main()
