"""Starts a cluster without agents, whose fleet gets as many as a job needs: `make demo-fleet`.

From 0 agents to 4 and back to 0; one of them is killed on the way. Every command is shown before it runs. Everything
that was started is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import windrow
from demo import HERE, ROOT, compose, need_base_image, run, show

QUESTIONS = 240
KILL_AFTER = QUESTIONS // 16
LABELS = ("--filter", "label=windrow.allocation")


def make_questions() -> Path:
    """Make the input: files with one number each."""
    folder = HERE / "questions"
    folder.mkdir(exist_ok=True)
    for number in range(QUESTIONS):
        (folder / f"{number:03d}.txt").write_text(str(number))
    return folder


def agents(project: str) -> list[str]:
    """Names of the fleet's containers that run."""
    of_project = ("--filter", f"label=com.docker.compose.project={project}")
    command = ["docker", "ps", "--format", "{{.Names}}", *LABELS, *of_project]
    return subprocess.check_output(command, text=True).split()


class Watch:
    """Tells what happens, a line whenever the number of agents changes."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._began = time.monotonic()
        self._told: tuple[int, int] | None = None
        self.most = 0

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def look(self, client: windrow.Client, done: int) -> int:
        """Tell how many agents there are, if that has changed. Returns how many containers there are."""
        (fleet,) = client.fleets.list()
        (group,) = fleet.groups
        running = len(agents(self._project))
        self.most = max(self.most, group.alive)
        if (running, group.alive) != self._told:
            self._told = (running, group.alive)
            self.say(
                f"wanted {group.wanted}, containers {running}, agents {group.alive}, of them busy {group.busy}; "
                f"{done} of {QUESTIONS} questions are answered"
            )
        return running


def main() -> None:
    docker_compose = compose()
    project = os.environ.setdefault("COMPOSE_PROJECT_NAME", "windrow-demo")
    os.environ["WINDROW_CONTEXTS"] = str(ROOT / "build" / "demo-contexts.json")
    for name in ("WINDROW_MASTER", "WINDROW_STATE"):
        os.environ.pop(name, None)
    windrow_command = str(Path(sys.executable).with_name("windrow"))
    need_base_image()
    questions = make_questions()
    try:
        run(*docker_compose, "build", "--quiet")
        for name, value in (("WINDROW_AGENTS", "0"), ("WINDROW_FLEET_FILE", "./examples/cluster/fleet.yml")):
            show("export", f"{name}={value}")
            os.environ[name] = value
        run(*docker_compose, "--profile", "fleet", "up", "-d")
        export = [*docker_compose, "run", "--rm", "-T", "client", "context", "export"]
        show(*export, "|", "windrow", "context", "add", "demo", "-")
        exported = subprocess.check_output(export, cwd=ROOT, stderr=subprocess.DEVNULL)
        subprocess.run([windrow_command, "context", "add", "demo", "-"], input=exported, check=True)
        watch = Watch(project)
        with windrow.Client(patience_s=60) as client:
            while not client.fleets.list():
                time.sleep(0.2)
            watch.look(client, 0)
            show("windrow", "job", "create", "examples/cluster/ask.yml")
            subprocess.run([windrow_command, "job", "create", str(HERE / "ask.yml")], cwd=ROOT, check=True)
            killed = False
            while not (job := next(client.list_jobs())).state.ended:
                running = watch.look(client, job.items.ended)
                if not killed and running == 4 and job.items.ended >= KILL_AFTER:
                    killed = True
                    victim = agents(project)[0]
                    watch.say("One agent is killed:")
                    run("docker", "kill", victim)
                time.sleep(0.5)
            watch.say(f"The job has ended: {job.state}. Agents leave when they have had nothing to do for 10 s.")
            while watch.look(client, job.items.ended):
                time.sleep(0.5)
        fetched = ROOT / "build" / "demo-answers"
        shutil.rmtree(fetched, ignore_errors=True)
        show("windrow", "job", "download", job.job_id, "--to", "build/demo-answers")
        subprocess.run([windrow_command, "job", "download", job.job_id, "--to", str(fetched)], check=True)
        rows = (fetched / "answers" / "parallel_run_step.txt").read_text().splitlines()
        expected = sorted(file.stem for file in questions.iterdir())
        assert [row.split(",")[0] for row in rows] == expected, "answers are missing, or there twice"
        assert killed and watch.most == 4
        show("windrow", "fleet", "show", "demo")
        subprocess.run([windrow_command, "fleet", "show", "demo"], check=True)
        print(f"\n{len(rows)} answers, each once. There were {watch.most} agents at most, and there are 0 now.")
    finally:
        # Containers of the fleet are no service of the file: --remove-orphans takes away what is left of them.
        run(*docker_compose, "--profile", "fleet", "down", "-v", "--remove-orphans", "-t", "15")


if __name__ == "__main__":
    main()
