"""The documentation's commands of Docker, copied as they stand into a clone, one after another, as a stranger would.

The clone has a blank in its path and nothing but a port in its `.env`. What stands for something else is put in: JOB.
Both Composes have to do: one does all of it, the other what it could do differently.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from container_cluster import free_port, wait_until
from container_engine import REPOSITORY, docker
from documented_commands import BACK_UP, BACKUP, DEPLOY, IMAGES, README, UPGRADE, Block, block, type_line, write_project
from opened_store import open_store

pytestmark = pytest.mark.timeout(900, func_only=True)

BIN = Path(sys.executable).parent
TEXTS = {f"{number:02d}.txt": "line\n" * number for number in range(1, 20)}
SIZES = "file,lines,characters\n" + "".join(
    f"{name},{text.count(chr(10))},{len(text)}\n" for name, text in TEXTS.items()
)
FOLDERS = ("agent", "client", "docker", "master", "worker")
FILES = (".dockerignore", ".env.example", "docker-compose.yml", "LICENSE", "README.md", "pyproject.toml")
IDS = "docker image inspect --format '{{.Id}}' windrow-master windrow-agent"
OWNERS = (1000, 1234, 0) if os.geteuid() == 0 else ()
"""Of a clone, one after another."""
COMPOSES = {"v2": "docker compose", "v1": "docker-compose"}


class Clone:
    """A clone of this repository with a cluster of its own, whose commands are typed in it."""

    def __init__(self, folder: Path, compose: str) -> None:
        self.folder = folder
        self.project = re.sub("[^a-z0-9_-]", "", folder.name.lower())
        self._compose = compose
        self._label = f"windrow.test={self.project}"
        folder.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for name in FOLDERS:
            shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
        for name in FILES:
            shutil.copy2(REPOSITORY / name, folder / name)
        with (folder / "docker" / "Dockerfile").open("a") as file:
            # By this, its images are told from those of other clones, also when they have no name any more.
            file.write(f"LABEL {self._label}\n")
        self._commit()
        write_project(folder)
        for name, text in TEXTS.items():
            (folder / "texts" / name).write_text(text)
        self.port = free_port()
        # Names of their own: an image that loses its name to another build stays behind without one.
        self.images = [f"windrow-{role}-{self.project}" for role in ("master", "agent")]
        names = "".join(f"WINDROW_{name.split('-')[1].upper()}_IMAGE={name}\n" for name in self.images)
        (folder / ".env").write_text(f"WINDROW_PORT={self.port}\n{names}")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("WINDROW_", "COMPOSE_"))}
        self.environment = {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "WINDROW_CONTEXTS": str(folder.parent / "contexts.json"),
            # v1 builds by Docker's own command, whose cache the images under test have filled.
            "COMPOSE_DOCKER_CLI_BUILD": "1",
            "DOCKER_BUILDKIT": "1",
        }

    def _commit(self) -> None:
        """There is something to pull from."""
        origin = self.folder.parent / "origin.git"
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        for arguments in (
            ("init", "-q", "-b", "main"),
            ("add", "-A"),
            (*identity, "commit", "-q", "-m", "all"),
            ("clone", "-q", "--bare", ".", str(origin)),
            ("remote", "add", "origin", str(origin)),
            ("fetch", "-q", "origin"),
            ("branch", "-q", "-u", "origin/main"),
        ):
            subprocess.run(["git", *arguments], cwd=self.folder, check=True, capture_output=True)

    def type(self, command: str) -> str:
        """A line as a page has it; what it says. It must end well, and leave no volume without a name."""
        done = self.typed(command)
        told = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}: {done.returncode}\n{told}\n{self._logs()}"
        assert self.unnamed_volumes() == [], command
        return told

    def typed(self, command: str) -> subprocess.CompletedProcess[str]:
        """A line as a page has it, however it ends."""
        if re.search(r"\bJOB\b", command):
            command = re.sub(r"\bJOB\b", self.newest_job(), command)
        # Images of other clones on this machine are not this test's to remove.
        command = command.replace("image prune --force", f"image prune --force --filter label={self._label}")
        command = command.replace("docker compose", self._compose)
        return type_line(command, self.folder, self.environment, 300)

    def type_block(self, wanted: Block) -> str:
        """All lines of a block; what they say."""
        return "".join(self.type(line) for line in wanted.lines)

    def _logs(self) -> str:
        texts = [docker("logs", "--tail", "20", container, check=False) for container in self.containers()]
        return "\n".join(texts)

    def newest_job(self) -> str:
        """The name of the last job."""
        listed = self.type("docker compose run --rm -T client job list --format json 2>/dev/null")
        return str(json.loads(listed)[0]["job_id"])

    def containers(self, service: str = "", *, running: bool = False) -> list[str]:
        """Ids of the project's containers."""
        labels = [f"label=com.docker.compose.project={self.project}", "label=com.docker.compose.oneoff=False"]
        labels += [f"label=com.docker.compose.service={service}"] if service else []
        # v1 writes the same labels, and v2 does not write `oneoff` as v1 does for all: filter by service is enough.
        filters = [part for label in labels for part in ("--filter", label)]
        return docker("ps", "-q", *(() if running else ("-a",)), *filters).split()

    def agents(self) -> int:
        """How many agents run."""
        return len(self.containers("agent", running=True))

    def unnamed_volumes(self) -> list[str]:
        """Volumes that nobody could find again when their containers are gone."""
        mounts = [json.loads(docker("inspect", "-f", "{{json .Mounts}}", one)) for one in self.containers()]
        names = [mount.get("Name", "") for of_one in mounts for mount in of_one]
        return [name for name in names if re.fullmatch("[0-9a-f]{64}", name)]

    def unnamed_images(self) -> list[str]:
        """Images that have lost their names to others."""
        return docker("images", "-q", "--filter", "dangling=true", "--filter", f"label={self._label}").split()

    def release(self) -> None:
        """There is something new to pull."""
        other = self.folder.parent / "other"
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "clone", "-q", str(self.folder.parent / "origin.git"), str(other)], check=True)
        with (other / "client" / "windrow" / "common" / "as_owner.py").open("a") as file:
            file.write("\n# A newer version.\n")
        for arguments in (("commit", "-q", "-a", "-m", "newer"), ("push", "-q")):
            subprocess.run(["git", *identity, *arguments], cwd=other, check=True)

    def volumes(self) -> set[str]:
        """Names of the project's volumes."""
        return set(docker("volume", "ls", "-q", "--filter", f"name={self.project}_").split())

    def setup_began(self) -> str:
        """When `setup` ran last."""
        (container,) = self.containers("setup")
        return docker("inspect", "-f", "{{.State.StartedAt}}", container)

    def nodes_are(self, count: int) -> None:
        """Wait until so many nodes are ready."""

        def ready() -> bool:
            listed = self.type("docker compose run --rm -T client node list --format json 2>/dev/null")
            return [node["state"] for node in json.loads(listed)] == ["ready"] * count

        wait_until(ready, f"{count} nodes ready", 120)

    def give_to(self, owner: int) -> None:
        """The clone is that user's, and nobody else may look into it."""
        for place in (self.folder, *self.folder.rglob("*")):
            os.chown(place, owner, owner, follow_symlinks=False)
        self.folder.chmod(0o700)

    def take_fetched(self, path: str = "sizes.csv") -> None:
        """What was fetched is what the job makes; it is removed."""
        assert (self.folder / path).read_text() == SIZES
        (self.folder / path).unlink()


@pytest.fixture
def clone(images: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Clone]:
    """A clone for one of the Composes; its cluster goes with the test."""
    compose = COMPOSES[request.param]
    if subprocess.call([*compose.split(), "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
        pytest.skip(f"{compose} is not installed")
    tmp_path.chmod(0o755)
    made = Clone(tmp_path / "a clone" / f"Docs {request.param} {os.getpid()}", compose)
    try:
        yield made
    finally:
        end = [*compose.split(), "down", "-v", "--remove-orphans", "-t", "5"]
        subprocess.run(end, cwd=made.folder, env=made.environment, capture_output=True, check=False)
        # And what its builds have replaced.
        docker("rmi", *made.images, *made.unnamed_images(), check=False)


@pytest.mark.parametrize("clone", ["v2"], indirect=True)
def test_the_pages_from_the_first_command_to_the_last(clone: Clone) -> None:
    clone.type_block(block(README, "docker compose build"))
    clone.take_fetched()
    clone.type_block(block(DEPLOY, "docker compose build"))
    assert clone.agents() == 1
    clone.type_block(block(DEPLOY, "echo WINDROW_AGENTS=4 >> .env"))
    assert clone.agents() == 4
    clone.nodes_are(4)
    began = clone.setup_began()
    told = clone.type_block(block(DEPLOY, "docker compose run --rm client job create job.yml --stream"))
    assert "sizes.csv is filled by: windrow job download" in told
    clone.take_fetched()
    for owner in OWNERS:
        clone.give_to(owner)
        clone.type("docker compose run --rm client job download JOB")
        status = (clone.folder / "sizes.csv").stat()
        assert (status.st_uid, status.st_gid) == (owner, owner)
        clone.take_fetched()
    assert clone.setup_began() == began, "a command of the client's runs no setup"
    clone.type_block(block(DEPLOY, "docker compose run --rm -T client context export | windrow context add local -"))
    clone.take_fetched()
    clone.take_fetched("results/sizes.rows/sizes.csv")
    clone.type_block(block(DEPLOY, "sed -i 's/^WINDROW_AGENTS=.*/WINDROW_AGENTS=2/' .env"))
    assert clone.agents() == 2
    backup = block(BACKUP, BACK_UP)
    clone.type_block(backup)
    a_refused_backup_keeps_the_last_one(clone, backup)
    later = clone.newest_job()
    the_images_say_what_they_hold(clone)
    clone.type("windrow job create job.yml --name after-the-backup --stream")
    clone.type_block(block(BACKUP, "docker compose down"))
    assert clone.agents() == 2
    assert clone.newest_job() == later
    clone.type("windrow job list")
    an_upgrade_leaves_no_image_without_a_name(clone)
    clone.type_block(block(UPGRADE, "docker compose up -d --no-deps master"))
    assert clone.agents() == 2
    clone.nodes_are(2)


def a_refused_backup_keeps_the_last_one(clone: Clone, backup: Block) -> None:
    """Where there is no room for it, say."""
    clone.nodes_are(2)
    (line,) = backup.lines
    (saved,) = clone.folder.glob("*.tar")
    before = saved.read_bytes()
    done = clone.typed(line.replace(" backup >", " backup --nonsense >"))
    assert done.returncode != 0 and "unknown option" in done.stderr
    assert list(clone.folder.glob("*.tar")) == [saved] and saved.read_bytes() == before


def the_images_say_what_they_hold(clone: Clone) -> None:
    """By the commands of the page, of the images that this clone has built."""
    for line in (*block(IMAGES, "docker compose build").lines, *block(IMAGES, IDS).lines):
        told = clone.type(re.sub(r"windrow-(master|agent)", rf"windrow-\1-{clone.project}", line))
    assert len(re.findall(r"^sha256:[0-9a-f]{64}$", told, re.M)) == 2
    for role in ("master", "agent"):
        listed = json.loads((clone.folder / f"{role}.cdx.json").read_text())
        assert "grpcio" in [component["name"] for component in listed["components"]]


def an_upgrade_leaves_no_image_without_a_name(clone: Clone) -> None:
    """The images that it has replaced are gone, and those that run have their names."""
    before = {docker("images", "-q", "--no-trunc", image) for image in clone.images}
    clone.release()
    clone.type_block(block(UPGRADE, "git pull && docker compose build && docker compose up -d"))
    after = {docker("images", "-q", "--no-trunc", image) for image in clone.images}
    assert not before & after, "it was another version"
    assert clone.unnamed_images() == []
    for image in before:
        assert subprocess.call(["docker", "image", "inspect", image.strip()], stdout=-3, stderr=-3) != 0


@pytest.mark.parametrize("clone", ["v1"], indirect=True)
def test_the_other_compose_and_what_stands_in_sentences(clone: Clone) -> None:
    for command in ("docker compose build agent", "docker compose build master"):
        clone.type(command)
    clone.type("echo WINDROW_AGENTS=2 >> .env")
    clone.type("docker compose up -d")
    assert clone.agents() == 2
    clone.nodes_are(2)
    assert "Made a private certificate authority" in clone.type("docker compose logs setup")
    began = clone.setup_began()
    clone.type("docker compose run --rm client node list")
    clone.type_block(block(DEPLOY, "docker compose run --rm client job create job.yml --stream"))
    clone.take_fetched()
    clone.type("docker compose run --rm client job list")
    assert clone.setup_began() == began
    before = set(clone.containers())
    clone.type("docker compose up -d")
    assert {*clone.containers("master"), *clone.containers("agent")} <= before, "nothing was changed"
    clone.type("echo WINDROW_SLOTS=1 >> .env")
    clone.type("docker compose up -d")
    assert clone.agents() == 2
    assert set(clone.containers("master")) <= before and not set(clone.containers("agent")) & before
    clone.type("docker compose up -d --scale agent=4")
    assert clone.agents() == 4
    clone.type("docker compose up -d")
    assert clone.agents() == 2
    assert "All files exist" in clone.type("docker compose run --rm setup")
    clone.type("docker compose run --rm setup setup --folder /windrow --owner 1000 --new-tokens")
    clone.nodes_are(2)
    backup = block(BACKUP, BACK_UP)
    clone.type_block(backup)
    a_refused_backup_keeps_the_last_one(clone, backup)
    clone.type("docker compose stop")
    assert not clone.containers(running=True)
    volumes = clone.volumes()
    clone.type("docker compose down")
    assert clone.volumes() == volumes, "nothing is gone, and nothing is left"
    kept = docker("volume", "ls", "-q", "--filter", f"name={clone.project}_", "--filter", "label=windrow.keep").split()
    assert {name.removeprefix(f"{clone.project}_") for name in volumes - set(kept)} == {"environments"}
    clone.type_block(block(BACKUP, "docker compose down"))
    clone.nodes_are(2)
    an_upgrade_leaves_no_image_without_a_name(clone)
    clone.type("docker compose down -v")
    assert clone.volumes() == set() and clone.containers() == []


def test_a_backup_that_is_not_whole_changes_nothing(images: None, tmp_path: Path) -> None:
    """Nor does one that is put back under a master that runs."""
    for place in ("authority", "state"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "kept").write_text(place)
    open_store(tmp_path / "state").close()
    (tmp_path / "authority" / "authority.pem").write_text("key")
    script = REPOSITORY / "docker" / "backup.sh"

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        mounts = ("-v", f"{script}:/backup.sh:ro", "-v", f"{tmp_path}:/backup")
        command = ("docker", "run", "--rm", "-i", "--user", "0", *mounts, "--entrypoint", "sh", "windrow-master")
        return subprocess.run([*command, "/backup.sh", *arguments], input=stdin, capture_output=True, check=False)

    saved = run()
    assert saved.returncode == 0, saved.stderr

    def content() -> dict[Path, bytes]:
        unlike = ("windrow.db", "windrow.db-wal", "windrow.db-shm", "backup.lock")
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name not in unlike}

    before = content()
    for damaged in (b"", saved.stdout[:1000], saved.stdout[: len(saved.stdout) // 2], b"nonsense"):
        done = run("--restore", stdin=damaged)
        assert done.returncode == 1 and b"nothing was changed" in done.stderr
        assert content() == before
    (tmp_path / "state" / "later").touch()
    assert run("--restore", stdin=saved.stdout).returncode == 0
    assert content() == before
    lock = tmp_path / "state" / "lock"
    with subprocess.Popen(["flock", str(lock), "sh", "-c", "echo held; read wait"], stdin=PIPE, stdout=PIPE) as master:
        assert master.stdout is not None and master.stdout.readline()
        assert run().returncode == 0
        done = run("--restore", stdin=saved.stdout)
        assert done.returncode == 1 and b"the master is running" in done.stderr
        master.communicate()


def test_the_override_for_storage_is_the_command_of_today() -> None:
    """It replaces the master's command as a whole, so it must say all that the command says, and one store more."""
    import yaml

    (override,) = re.findall(r"```yaml\n(services:\n.*?)```", (REPOSITORY / DEPLOY).read_text(), re.DOTALL)
    base = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]["master"]["command"]
    told = yaml.safe_load(override)["services"]["master"]["command"]
    assert [part for part in told if "s3://" not in part] == base


def test_nothing_leaves_an_image_without_a_name() -> None:
    """The classic builder keeps each stage but the last as one; and two builds of a name leave the first as one."""
    import yaml

    stages = re.findall(r"^FROM ", (REPOSITORY / "docker" / "Dockerfile").read_text(), re.M)
    assert len(stages) == 1
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    images = [service["image"] for service in services.values() if "build" in service]
    assert sorted(images) == sorted({service["image"] for service in services.values()})
