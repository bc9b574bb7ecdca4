"""The commands of the documentation: where they stand, which of them tests run, and why others are not run.

A block is what a reader would copy: indented lines of a page, a fence of Python, or commands in the comments of the
files that deploy Windrow. Single commands are those of Docker that stand in the middle of a sentence.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
    "benchmarks/README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "examples").rglob("README.md")),
]
COMMENTED = [
    "docker-compose.yml",
    ".env.example",
    "docker/backup.sh",
    "docker/agent-requirements.txt",
    "client/windrow/common/as_owner.py",
]


class Block(NamedTuple):
    """Commands that stand together. `language`: of its fence, "" for commands of a shell."""

    page: str
    lines: tuple[str, ...]
    language: str = ""

    @property
    def name(self) -> tuple[str, str]:
        """By what it is known here: the page, and the first line without its comment."""
        return self.page, without_comment(self.lines[0])


def without_comment(line: str) -> str:
    """A command without what explains it."""
    return re.sub(r"\s+# .*", "", line).strip()


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page, in its order."""
    found: list[Block] = []
    lines: list[str] = []
    fence: str | None = None
    before = ""
    for line in [*(ROOT / page).read_text().splitlines(), ""]:
        if line.startswith("```"):
            if fence == "python":
                found.append(Block(page, tuple(lines), fence))
            fence, lines = (line.removeprefix("```"), []) if fence is None else (None, [])
        elif fence is not None:
            lines.append(line)
        elif line.startswith("    ") and (lines or not before.strip()):
            lines.append(line[4:])
        elif lines:
            found.append(Block(page, tuple(lines)))
            lines = []
        before = line
    return found


def commented_commands(file: str) -> list[str]:
    """Commands of Compose that the comments of a file name, in its order."""
    comments = "\n".join(re.findall(r"# ?(.*)", (ROOT / file).read_text()))
    return [command.strip() for command in re.findall(r"(docker compose [^`\n]+)", comments)]


def single_commands(page: str) -> list[str]:
    """Commands of Docker that stand in sentences and tables of a page, each once, in its order."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    text = re.sub(r"^    .*", "", text, flags=re.M)
    return list(dict.fromkeys(re.findall(r"`((?:sudo docker/|docker )[a-z][^`]+)`", text)))


def block(page: str, first: str) -> Block:
    """The block of a page that begins with this command. Raises LookupError."""
    for found in blocks_of(page):
        if found.name == (page, first):
            return found
    raise LookupError(f"{page} has no block that begins with {first}")


README, TUTORIAL, PYTHON = "README.md", "docs/tutorial.md", "docs/reference/python.md"
DEPLOY = "docs/how-to/deploy-with-containers.md"
BACKUP = "docs/how-to/back-up-and-restore.md"
UPGRADE = "docs/how-to/upgrade.md"
SINCE = "docs/how-to/run-only-what-is-new.md"
REUSE = "docs/how-to/reuse-results.md"
RETRY = "docs/how-to/retry-a-job.md"
PUBLISH = "docs/how-to/publish-a-pipeline.md"
WATCH = "docs/how-to/watch-a-job.md"
ROWS = "docs/how-to/look-at-rows.md"
WHY_FAILED = "docs/how-to/find-out-why-a-job-failed.md"
API_KEY = "docs/how-to/use-an-api-key.md"
ONE_LINE = "docs/how-to/run-without-a-job-file.md"
NOTEBOOK = "docs/how-to/work-in-a-notebook.md"
MAP = "docs/how-to/map-a-function.md"
SERVICE = "docs/how-to/call-a-service.md"
CSV = "docs/how-to/run-on-your-own-csv.md"
GROUPS = "docs/how-to/train-a-model-per-group.md"
GPUS = "docs/how-to/run-on-gpus.md"
STORAGE = "docs/how-to/use-object-storage.md"
LIBRARIES = "docs/how-to/install-libraries.md"
DAMAGED = "docs/how-to/repair-a-damaged-state.md"
CLUSTER = "docs/how-to/run-a-cluster.md"
SLURM = "docs/how-to/run-on-slurm.md"
CONFINE = "docs/how-to/confine-scripts.md"
TLS = "docs/how-to/use-tls-and-tokens.md"
SHARE = "docs/how-to/share-a-cluster.md"
DISK = "docs/how-to/free-disk-space.md"
IMAGES = "docs/how-to/check-the-images.md"
USAGE = "docs/how-to/see-who-uses-what.md"
FLEET = "docs/how-to/run-a-fleet.md"
SPOT = "docs/how-to/use-spot-machines.md"
INSIDE = "docs/how-to/run-inside-dask-or-spark.md"
FLEET_FILE = "docs/reference/fleet-file.md"
KUBERNETES = "docs/how-to/run-a-fleet-on-kubernetes.md"

BACK_UP = "docker compose run --rm -T backup > backup.unfinished && mv backup.unfinished windrow-backup.tar"
IN_A_CLUSTER = [
    (README, "docker compose build"),
    (DEPLOY, "docker compose build"),
    (DEPLOY, "echo WINDROW_AGENTS=4 >> .env"),
    (DEPLOY, "docker compose run --rm client job create job.yml --stream"),
    (DEPLOY, "docker compose run --rm -T client context export | windrow context add local -"),
    (DEPLOY, "sed -i 's/^WINDROW_AGENTS=.*/WINDROW_AGENTS=2/' .env"),
    (BACKUP, BACK_UP),
    (BACKUP, "docker compose down"),
    (UPGRADE, "git pull && docker compose build && docker compose up -d"),
    (UPGRADE, "docker compose up -d --no-deps master"),
    (IMAGES, "docker compose build"),
    (IMAGES, "docker image inspect --format '{{.Id}}' windrow-master windrow-agent"),
]
"""Run in a clone, with the job of the README: tests/containers/test_containers_documentation.py."""

SINGLE_IN_A_CLUSTER = [
    "docker compose up -d",
    "docker compose up -d --scale agent=4",
    "docker compose logs setup",
    "docker compose build agent",
    "docker compose build master",
    "docker compose run --rm setup",
    "docker compose run --rm setup setup --folder /windrow --owner 1000 --new-tokens",
    "docker compose run --rm client node list",
    "docker compose run --rm client job list",
    "docker compose stop",
    "docker compose down",
    "docker compose build",
    "docker compose down -v",
]
"""The same, of those that stand in sentences, tables and comments."""

IN_A_PROJECT = [
    (README, "windrow run job.yml"),
    (MAP, "import windrow"),
    (SINCE, "windrow run job.yml --since last"),
    (RETRY, "windrow job retry JOB"),
    (PUBLISH, 'windrow pipeline publish job.yml --name nightly --description "Scores the new images"'),
    (BACKUP, "windrow backup backups/monday"),
    (DISK, "windrow job prune --older-than 30d --keep-last 100 --dry-run"),
    (WATCH, "windrow job list --only running"),
    (WATCH, "windrow top"),
    (WATCH, "from pathlib import Path"),
    (WATCH, "windrow job show JOB --metrics"),
    (WHY_FAILED, "windrow mb list JOB --only failed"),
    (WHY_FAILED, "windrow mb bundle JOB 17 --item 0 -o bug.zip"),
    ("docs/job-file.md", "windrow data create --name flowers --path ./flowers"),
    (API_KEY, "from pathlib import Path"),
    (CSV, "def run(mini_batch):"),
    (CSV, "windrow run job.yml"),
    (CSV, "```yaml"),
    (GROUPS, "import argparse"),
    (PYTHON, "import windrow"),
    (PYTHON, "from windrow.ml import Input, MLClient, Output"),
]
"""Run in a folder with the job of the README: tests/examples/test_examples_commands.py."""

AS_A_WHOLE = [TUTORIAL]
"""Pages all of whose blocks run, one after another: tests/examples/test_examples_tutorial.py."""

_OTHER_MACHINES = "needs other machines, and folders that are this one's own"
_ALL_OF_SHARE = "tests/master/test_master_queues.py types all commands of the page"
ELSEWHERE = {
    (
        "docs/how-to/name-data-and-models.md",
        "windrow environment create --file environment.yml",
    ): "tests/integration/test_integration_pipelines.py has the same commands",
    (API_KEY, "MY_SERVICE_KEY=... windrow agent --master ... --pass-env MY_SERVICE_KEY"): (
        "an agent that goes on; tests/agent has variables that are passed through"
    ),
    (STORAGE, "pip install 'windrow[storage]'"): "tests/packaging installs the wheel with its extras",
    (STORAGE, "windrow agent --master 10.0.0.5:8470 --folder /var/lib/windrow --data-cache 50GB"): (
        f"{_OTHER_MACHINES}, and a folder of this machine's; tests/storage/test_storage_cache.py has the same setting"
    ),
    (LIBRARIES, "pip install 'windrow[conda]'"): "the same",
    (LIBRARIES, "import subprocess"): "needs R; tests/integration/test_integration_environments.py calls a stand-in so",
    (
        SERVICE,
        "windrow run score.py reviews.csv -o scores.csv --mini-batch-size 1 --rate-limit 20/s --retry-delay 1s "
        "--max-retries 5",
    ): "tests/examples/test_examples_http_service.py has the same options",
    (SERVICE, "class Busy(Exception):"): "a part of a script; tests/worker/test_worker_retry_after.py",
    (
        "examples/http-service/README.md",
        "python examples/http-service/server.py --rate 10",
    ): "tests/examples/test_examples_http_service.py runs all commands of that page",
    (
        "examples/http-service/README.md",
        "windrow run examples/http-service/job.yml",
    ): "the same",
    (
        SINCE,
        "windrow run job.yml --since last --code-change rerun",
    ): "tests/integration/test_integration_since.py",
    (ROWS, "windrow job rows last"): "tests/integration/test_integration_rows.py",
    (ROWS, 'windrow job query last "select digit, count(*) from rows group by digit"'): "the same",
    (ROWS, "import windrow"): "the same",
    (GPUS, "def init():"): "needs a GPU and torch",
    (GPUS, "pip install 'windrow[gpu]'"): f"{_OTHER_MACHINES}; tests/integration/test_integration_gpus.py has agents",
    (GPUS, "windrow queue show vision"): "tests/master/test_master_queues.py",
    (GROUPS, "pip install 'windrow[partition]'"): "the test of the script above runs the second line",
    (README, "mkdir -p code texts"): "tests/examples/test_examples_end_to_end.py runs it, and the next one",
    (README, "windrow run code/sizes.py texts/ -o sizes.csv"): "with the block before",
    (README, "windrow init orders.csv --job orders.yml"): "with the blocks before",
    (CSV, "windrow run code/score.py orders.csv -o totals.csv"): "tests/integration/test_integration_one_line.py",
    (ONE_LINE, "windrow run sizes.py photos/ -o sizes.csv"): "tests/integration/test_integration_one_line.py",
    (ONE_LINE, "windrow run sizes.py photos/ -o sizes.csv --workers 4 --timeout 600 -- --threshold 0.5"): "the same",
    (ONE_LINE, "windrow run sizes.py photos/ -o sizes.csv --save job.yml"): "the same",
    (ONE_LINE, "windrow init photos/"): "the same",
    (ONE_LINE, "from pathlib import Path"): "an example of a script; the script of the README is one, too",
    (NOTEBOOK, "import windrow"): "tests/client/test_client_notebook.py and tests/examples/test_examples_notebook.py",
    (NOTEBOOK, "try:"): "the same",
    (NOTEBOOK, 'with windrow.Client(state=".windrow") as client:'): "the same",
    (NOTEBOOK, "import warnings"): "tests/client/test_client_warnings.py",
    (PYTHON, "try:"): "the same",
    (README, "from pathlib import Path"): "the script of the job that all others run",
    ("CONTRIBUTING.md", "make setup"): "runs this test",
    ("CONTRIBUTING.md", "@fault(7)"): "a part of tests/simulation",
    (README, "make demo"): "tests/examples/test_examples_end_to_end.py does what it does",
    (README, "make test"): "runs this test",
    (README, "pip install ."): "tests/packaging installs the wheel, alone and with its extras",
    (
        DEPLOY,
        "windrow agent --master gpu0.example:8470 --ca-file ca.pem --join-token-file join-token "
        "--folder /var/lib/windrow --user nobody",
    ): f"{_OTHER_MACHINES}; tests/master joins by the same command over loopback",
    (
        DAMAGED,
        "windrow state check DIR",
    ): "tests/integration/test_integration_damaged_database.py has the same commands",
    (REUSE, "settings: {force_rerun: false}"): "keys of a job file; tests/integration/test_integration_reuse.py",
    (
        CLUSTER,
        "windrow setup --folder /etc/windrow --name master.example",
    ): f"{_OTHER_MACHINES}; tests/integration/test_integration_cluster.py has the same commands",
    (
        SLURM,
        "sbatch windrow-in-one-job.sh job.yml my-job",
    ): "tests/fleet/slurm submits it, with the script of the page, to a real Slurm",
    (
        TLS,
        "windrow setup --folder /etc/windrow --new-authority begin",
    ): "tests/master/test_master_security.py takes the same stages",
    (
        TLS,
        "windrow token create ci --role submit --project vision --expires 90d > ci.token",
    ): "tests/master/test_master_tokens.py has the same commands",
    (SHARE, "windrow queue list"): _ALL_OF_SHARE,
    (SHARE, "windrow queue set vision --weight 2 --quota 1"): _ALL_OF_SHARE,
    (SHARE, "windrow queue explain web"): _ALL_OF_SHARE,
    (SHARE, "windrow queue apply queues.yml --dry-run"): _ALL_OF_SHARE,
    (SHARE, "windrow job create job.yml --priority 5 --deadline 2h"): _ALL_OF_SHARE,
    (SHARE, "windrow job list"): _ALL_OF_SHARE,
    (SHARE, "windrow job explain nightly"): _ALL_OF_SHARE,
    (
        DISK,
        "windrow master --state /var/lib/windrow --datastore default=/data --retain 30d --retain-last 100",
    ): "a master that goes on, in folders that are this machine's own; tests/master/test_master_retention.py",
    **dict.fromkeys(
        [
            (FLEET, "windrow fleet run fleet.yml --dry-run"),
            (FLEET, "windrow fleet run fleet.yml"),
            (FLEET, "windrow fleet list"),
            (FLEET, "windrow fleet pause site"),
            (FLEET, "windrow fleet delete site"),
        ],
        "tests/fleet/test_fleet_run.py has the same commands",
    ),
    (
        KUBERNETES,
        "pip install 'windrow[kubernetes]'",
    ): "needs a cluster; tests/fleet/kube has one without its API server",
    (
        KUBERNETES,
        "docker build --build-arg ROLE=master --build-arg MASTER_EXTRAS=setup,storage,kubernetes -f docker/Dockerfile "
        "-t registry.example/windrow-master:0.1.0 .",
    ): "needs a registry; tests/containers builds the same images",
    (
        KUBERNETES,
        "helm upgrade --install windrow deploy/helm/windrow --namespace ml --create-namespace --values values.yml",
    ): "needs a cluster; tests/fleet/kube/test_fleet_helm_chart.py renders the chart, with the values of this page too",
    (KUBERNETES, "windrow fleet scaler --listen 0.0.0.0:6000 --tls-file tls.pem"): (
        "serves until it is ended; tests/fleet/test_fleet_scaler.py has the same options"
    ),
    (FLEET_FILE, "import json"): "a template; tests/fleet/test_fleet_documentation.py runs it over an engine of files",
    (USAGE, "windrow usage --by project --since 7d"): "tests/master/test_master_usage.py has the same options",
    (
        USAGE,
        "windrow usage --by project,pool --since 30d --prices prices.yml",
    ): "tests/master/test_master_usage.py has the same options",
    (CONFINE, "windrow agent --master 10.0.0.5:8470 --folder /var/lib/windrow"): (
        f"{_OTHER_MACHINES}, and a folder of this machine's; tests/integration/test_integration_two_jobs.py has one"
    ),
    (
        CONFINE,
        "environment_variables: {WINDROW_ALLOW_PATH: /data/shared/models/resnet /data/shared/cache:rw}",
    ): "a variable of a step; tests/integration/test_integration_sandbox.py has the same",
    (CONFINE, "windrow agent --master 10.0.0.5:8470 --sandbox strict"): (
        f"{_OTHER_MACHINES}; tests/integration/test_integration_sandbox.py has the same options"
    ),
    (
        CONFINE,
        "windrow agent --master 10.0.0.5:8470 --sandbox strict --allow-path /data/models --allow-path "
        "/var/cache/huggingface:rw",
    ): f"{_OTHER_MACHINES}; tests/integration/test_integration_sandbox.py has the same options",
    (CONFINE, "program_arguments: --allow_path /data/shared/models/resnet"): (
        "arguments of a step; tests/integration/test_integration_sandbox.py has the same"
    ),
    (CONFINE, "windrow agent --master 10.0.0.5:8470 --sandbox strict --job-paths /data/shared"): (
        f"{_OTHER_MACHINES}; tests/integration/test_integration_sandbox.py has the same options"
    ),
    (
        CONFINE,
        "windrow agent --master 10.0.0.5:8470 --folder /var/lib/windrow --job-users 200000-204095",
    ): f"{_OTHER_MACHINES}; tests/agent/test_agent_job_users.py has the same settings",
    (
        CONFINE,
        "windrow agent --master 10.0.0.5:8470 --control-groups required --worker-processes 500 --worker-memory 8GB",
    ): f"{_OTHER_MACHINES}; tests/agent/test_agent_control_groups.py has the same settings",
    (TLS, "windrow setup --folder /etc/windrow --name gpu1.example"): (
        f"{_OTHER_MACHINES}; tests/master has the same commands over loopback"
    ),
    (IMAGES, "docker pull python:3.11-slim-bookworm"): "needs a registry",
    (
        IMAGES,
        "make audit",
    ): "needs an index that knows advisories; tests/packaging/test_packaging_locks.py has no network",
    (
        IMAGES,
        "make audit DATABASE=all.zip",
    ): "tests/packaging/test_packaging_locks.py runs the same over small databases",
    (IMAGES, "make lock"): "the same page's tests lock again, and compare",
    (IMAGES, 'make lock UPGRADE="grpcio protobuf"'): "would take what was published today",
    (
        DEPLOY,
        "docker compose --profile fleet up -d",
    ): "tests/containers/test_containers_fleet.py does the same with agents that leave sooner",
    (
        DEPLOY,
        "docker compose --profile fleet logs fleet",
    ): "shows what the fleet says; tests/containers/test_containers_fleet.py runs the second one",
    (
        SPOT,
        "windrow agent --master 10.0.0.5:8470 --preemption-check 'python3 ec2-notice.py' --drain-grace 20",
    ): f"{_OTHER_MACHINES}; tests/integration/test_integration_departures.py has the same options",
    **{
        (SPOT, f"# {cloud}-notice.py"): "tests/agent/test_agent_preemption.py runs it over loopback"
        for cloud in ("ec2", "azure", "google")
    },
    (INSIDE, "# agents_in_dask.py"): "tests/integration/test_integration_inside_engines.py, where Dask is installed",
    (
        INSIDE,
        "python agents_in_dask.py tcp://scheduler:8786 4 --master 10.0.0.5:8470 --ca-file ca.pem "
        "--join-token-file join-token --slots 1",
    ): f"{_OTHER_MACHINES}; tests/integration/test_integration_inside_engines.py runs the script over loopback",
    (INSIDE, "# agents_in_spark.py"): "tests/integration/test_integration_inside_engines.py, where Spark is installed",
    (
        INSIDE,
        "spark-submit --conf spark.task.maxFailures=100 agents_in_spark.py 4 --master 10.0.0.5:8470 --ca-file ca.pem "
        "--join-token-file join-token --slots 1",
    ): f"{_OTHER_MACHINES}; tests/integration/test_integration_inside_engines.py runs the script over loopback",
    ("benchmarks/README.md", "make bench"): "takes half an hour",
    ("examples/README.md", "pip install -e '.[dev]'"): "`make setup` does the same for these tests",
    (
        "examples/cluster/README.md",
        "make demo-cluster",
    ): "takes minutes; its commands are those of docs/how-to/deploy-with-containers.md",
    (
        "examples/cluster/README.md",
        "make demo-fleet",
    ): "takes minutes; tests/containers/test_containers_fleet.py does the same in less time",
    ("examples/digits/README.md", "python examples/digits/train.py"): "tests/examples/test_examples_end_to_end.py",
    ("examples/iris/README.md", "python examples/iris/train.py"): "tests/examples/test_examples_end_to_end.py",
}
"""Blocks that no test runs as they stand, each with the reason."""

SINGLE_ELSEWHERE = {
    "docker compose": "names the program",
    "docker compose --profile fleet up -d": "a block of the deployment page, which says where it is tried",
    "docker compose --profile fleet down --remove-orphans": "tests/containers/test_containers_fleet.py ends with it",
    "docker run --volume": "names an option",
    "docker run --user": "names an option",
    "sudo docker/base-image": "makes the base image that all container tests stand on",
    "docker rmi python:3.11-slim-bookworm": "removes the image that all container tests stand on",
    "docker compose build --no-cache": "takes minutes; tests build with the cache",
    "docker volume prune": "told as what deletes a cluster",
    "docker system prune --volumes": "told as what deletes a cluster",
    "docker volume rm": "told as what deletes a cluster",
}


def type_line(
    command: str, folder: Path, environment: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a line of a page in a shell, as a person would type it in a folder."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def write_project(folder: Path) -> None:
    """The script and the job file of the README, with a folder for its texts."""
    text = (ROOT / README).read_text()
    script = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    job = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert script and job
    for name in ("code", "texts"):
        (folder / name).mkdir()
    (folder / "code" / "sizes.py").write_text(script[1])
    (folder / "job.yml").write_text(job[1])
