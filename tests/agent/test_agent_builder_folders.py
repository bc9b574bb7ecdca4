"""Folders that builders of environments share: a link that a script has laid there, also under an earlier agent, leads
nowhere.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from as_job_users import NEEDS_USERS, open_folder
from windrow.common.beneath import LinkRefused, Refused
from windrow_agent.config import AUTO_JOB_USERS, AgentConfig
from windrow_agent.environments.provider import folder_of
from windrow_agent.sandbox.builders import BuilderSandbox, variables_of_builders
from windrow_agent.sandbox.job_users import JobUsers, NoJobUsers

BUILDER = AUTO_JOB_USERS[0]


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The folder of an agent."""
    folder = tmp_path / "agent"
    folder.mkdir()
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that is nobody's business."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def strict(agent: Path, environment: dict[str, str]) -> BuilderSandbox:
    return BuilderSandbox(AgentConfig(agent, ("h:1",), sandbox="strict"), environment)


def test_builders_write_their_caches_and_read_the_pythons(tmp_path: Path, agent: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    environments = agent / "environments"
    found = strict(agent, environment).folders(environment, environments)
    assert found.caches == [tmp_path / ".cache" / "uv", tmp_path / ".cache" / "rattler" / "cache"]
    assert found.pythons == [environments / "pythons"]
    assert found.variables == {
        "UV_CACHE_DIR": str(found.caches[0]),
        "RATTLER_CACHE_DIR": str(found.caches[1]),
        "UV_PYTHON_INSTALL_DIR": str(found.pythons[0]),
    }
    assert all(path.is_dir() for path in (*found.caches, *found.pythons))


@pytest.mark.parametrize("link", [".cache", ".cache/uv"])
def test_a_link_in_the_user_s_home_is_not_followed(tmp_path: Path, agent: Path, elsewhere: Path, link: str) -> None:
    """The agent's own folder has the cache instead."""
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(elsewhere)
    environment = {"HOME": str(tmp_path)}
    found = strict(agent, environment).folders(environment, agent / "environments")
    assert found.caches[0] == agent / "uv-cache"
    assert list(elsewhere.iterdir()) == []


def test_the_home_itself_may_be_a_link(tmp_path: Path, agent: Path) -> None:
    """The operator's, above which the user changes nothing."""
    (tmp_path / "homes").mkdir()
    (tmp_path / "home").symlink_to("homes")
    environment = {"HOME": str(tmp_path / "home")}
    found = strict(agent, environment).folders(environment, agent / "environments")
    assert found.caches[0] == tmp_path / "homes" / ".cache" / "uv"


def test_a_link_in_the_place_of_the_pythons_is_refused(tmp_path: Path, agent: Path, elsewhere: Path) -> None:
    environments = agent / "environments"
    environments.mkdir()
    (environments / "pythons").symlink_to(elsewhere)
    environment = {"HOME": str(tmp_path)}
    with pytest.raises(LinkRefused, match="pythons is a link"):
        strict(agent, environment).folders(environment, environments)


@pytest.mark.parametrize("name", ["UV_CACHE_DIR", "RATTLER_CACHE_DIR", "UV_PYTHON_INSTALL_DIR"])
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_a_folder_that_the_operator_names_does_not_lead_into_windrow_s(tmp_path: Path, name: str, mode: str) -> None:
    """A builder would get all of the agent's folder."""
    agent = Path("/var/lib/windrow/no-agent-has-this")
    (tmp_path / "cache").symlink_to(agent / "environments")
    environment = {"HOME": str(tmp_path), name: str(tmp_path / "cache")}
    builders = BuilderSandbox(AgentConfig(agent, ("h:1",), sandbox=mode), environment)
    if os.geteuid() != 0:
        with pytest.raises(Refused, match="whom a script may be"):
            builders.folders(environment, tmp_path / "environments")
        return
    try:
        with pytest.raises(Refused, match=f"the folder that {name} names is not used: .* is Windrow's"):
            builders.folders(environment, tmp_path / "environments")
    finally:
        for made in (agent / "environments", agent, agent.parent):
            if made.is_dir() and not list(made.iterdir()):
                made.rmdir()


@NEEDS_USERS
def test_a_folder_that_the_operator_names_is_followed_by_links_of_root_alone(
    tmp_path: Path, agent: Path, elsewhere: Path
) -> None:
    link = tmp_path / "cache"
    link.symlink_to(elsewhere)
    environment = {"HOME": str(tmp_path), "UV_CACHE_DIR": f"{link}/uv"}
    assert strict(agent, environment).folders(environment, agent / "e").caches[0] == elsewhere / "uv"
    (elsewhere / "uv").rmdir()
    os.lchown(link, 1000, 1000)
    with pytest.raises(Refused, match=f"UV_CACHE_DIR names is not used: {link} is a link of user 1000"):
        strict(agent, environment).folders(environment, agent / "e")
    assert list(elsewhere.iterdir()) == []


@NEEDS_USERS
def test_a_link_in_the_place_of_a_cache_gives_the_user_of_builders_nothing(agent: Path, elsewhere: Path) -> None:
    environment = variables_of_builders(dict(os.environ))
    builders = BuilderSandbox(AgentConfig(agent, ("h:1",), sandbox="strict"), environment, BUILDER)
    assert builders.folders(environment, agent / "environments").caches == [agent / "uv-cache", agent / "rattler-cache"]
    assert (agent / "uv-cache").stat().st_uid == BUILDER
    assert (agent / "environments" / "pythons").stat().st_uid == 0
    (agent / "uv-cache").rmdir()
    (agent / "uv-cache").symlink_to(elsewhere)
    with pytest.raises(LinkRefused):
        builders.folders(environment, agent / "environments")
    with pytest.raises(LinkRefused):
        builders.give(agent / "uv-cache")
    assert elsewhere.stat().st_uid == 0


@NEEDS_USERS
@pytest.mark.parametrize("name", ["code", "staged", "workers", "steps", "environments"])
def test_users_of_jobs_get_no_folder_of_an_agent_in_which_a_link_is_one(elsewhere: Path, name: str) -> None:
    """A script under an earlier agent without users may have laid it."""
    before = stat.S_IMODE(elsewhere.stat().st_mode)
    with open_folder() as agent:
        (agent / name).symlink_to(elsewhere)
        with pytest.raises(NoJobUsers, match=f"{name} is a link"):
            JobUsers(AgentConfig(agent, ("h:1",), job_users="auto"))
        assert stat.S_IMODE(elsewhere.stat().st_mode) == before
        (agent / name).unlink()
        JobUsers(AgentConfig(agent, ("h:1",), job_users="auto")).close()


def test_environments_are_not_where_a_link_leads_that_a_script_may_have_laid(
    tmp_path: Path, agent: Path, elsewhere: Path
) -> None:
    (tmp_path / ".cache").symlink_to(elsewhere)
    environment = {"HOME": str(tmp_path)}
    assert folder_of(None, agent, environment) == elsewhere / "windrow" / "environments"
    assert folder_of(None, agent, environment, follows_links=False) == agent / "environments"
    (agent / "environments").rmdir()
    (agent / "environments").symlink_to(elsewhere)
    with pytest.raises(LinkRefused):
        folder_of(None, agent, environment, follows_links=False)
