"""`windrow setup`: repeated, it keeps what is there; it renews what runs out; each file is its owner's alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from windrow_master.setup.authority import Authority, names_of

COMMAND = [sys.executable, "-m", "windrow_master.setup"]
NOBODY = 65534
MODES = {
    "authority/authority.pem": 0o400,
    "authority/client-token": 0o400,
    "authority/join-token": 0o400,
    "authority/tls.pem": 0o400,
    "agent/ca.pem": 0o444,
    "agent/join-token": 0o400,
    "client/ca.pem": 0o444,
    "client/client-token": 0o400,
    "master/ca.pem": 0o444,
    "master/client-token": 0o400,
    "master/join-token": 0o400,
    "master/tls.pem": 0o400,
}


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [*COMMAND, "--folder", str(folder), *more], capture_output=True, text=True, timeout=240, check=False
    )


def set_up(folder: Path, *more: str) -> str:
    """What it says when it goes well."""
    done = run(folder, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def certificate_of(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "master" / "tls.pem").read_bytes())


def aged(folder: Path, *, begin_days: float, end_days: float) -> None:
    """Put a certificate in place that is valid from so many days ago for so many days from now."""
    pem = (folder / "authority" / "authority.pem").read_bytes()
    issuer = serialization.load_pem_private_key(pem, None)
    assert isinstance(issuer, ec.EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate(pem)
    key = ec.generate_private_key(ec.SECP256R1())
    old = certificate_of(folder)
    builder = x509.CertificateBuilder().subject_name(old.subject).issuer_name(authority.subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    now = datetime.now(UTC)
    builder = builder.not_valid_before(now - timedelta(days=begin_days)).not_valid_after(now + timedelta(days=end_days))
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    certificate = builder.sign(issuer, hashes.SHA256())
    place = folder / "authority" / "tls.pem"
    place.unlink()
    place.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )


def test_it_makes_everything_once(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    told = set_up(folder, "--name", "gpu1.example,10.0.0.7", "--name", "::2")
    made = files_of(folder)
    assert {name: (folder / name).stat().st_mode & 0o7777 for name in made} == MODES
    assert (folder / "authority").stat().st_mode & 0o777 == 0o700
    names = names_of(made["master/tls.pem"])
    assert set(names) == {"gpu1.example", "10.0.0.7", "::2", "localhost", "127.0.0.1", "::1"}
    assert made["master/join-token"] == made["agent/join-token"] != made["client/client-token"]
    assert made["master/client-token"] == made["client/client-token"]
    assert not [name for name, content in made.items() if b"PRIVATE KEY" in content and "pem" not in name]
    assert b"PRIVATE KEY" not in made["agent/ca.pem"] + made["client/ca.pem"] + made["master/ca.pem"]
    for token in (made["master/join-token"], made["master/client-token"]):
        assert re.fullmatch(rb"[0-9a-f]{64}", token) and token.decode() not in told
    assert set_up(folder) == "All files exist, and the certificates are valid for long enough.\n"
    assert (
        set_up(folder, "--name", "gpu1.example") == "All files exist, and the certificates are valid for long enough.\n"
    )
    assert files_of(folder) == made


def test_what_a_role_has_lost_it_gets_again(tmp_path: Path) -> None:
    set_up(tmp_path)
    made = files_of(tmp_path)
    for name in ("master/tls.pem", "agent/join-token", "client/ca.pem"):
        (tmp_path / name).unlink()
    (tmp_path / "client" / "client-token").unlink()
    (tmp_path / "client" / "client-token").write_text("another")
    set_up(tmp_path)
    assert files_of(tmp_path) == made


def test_a_name_that_is_missing_renews_the_certificate(tmp_path: Path) -> None:
    set_up(tmp_path, "--name", "one")
    before = files_of(tmp_path)
    told = set_up(tmp_path, "--name", "one", "--name", "two")
    assert "it lacks two" in told
    after = files_of(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"authority/tls.pem", "master/tls.pem"}
    assert "two" in names_of(after["master/tls.pem"])


@pytest.mark.parametrize(("end_days", "renewed"), [(-1, True), (33, True), (34, False)])
def test_a_certificate_with_less_than_a_third_of_its_time_is_renewed(
    tmp_path: Path, end_days: float, renewed: bool
) -> None:
    set_up(tmp_path, "--name", "kept.example")
    aged(tmp_path, begin_days=100 - end_days, end_days=end_days + 0.3)
    told = set_up(tmp_path, "--days", "90")
    assert ("Made a certificate of 90 days" in told) == ("is valid until" in told) == renewed
    certificate = certificate_of(tmp_path)
    assert "kept.example" in names_of((tmp_path / "master" / "tls.pem").read_bytes())
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    assert round(left / timedelta(days=1)) == (90 if renewed else end_days)


@pytest.mark.parametrize(
    "content", [b"", b"nothing of the kind", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_damaged_certificate_is_made_anew(tmp_path: Path, content: bytes) -> None:
    set_up(tmp_path, "--name", "one")
    (tmp_path / "authority" / "tls.pem").unlink()
    (tmp_path / "authority" / "tls.pem").write_bytes(content)
    assert "not issued by this authority" in set_up(tmp_path, "--name", "one")
    certificate_of(tmp_path).verify_directly_issued_by(
        x509.load_pem_x509_certificate((tmp_path / "agent" / "ca.pem").read_bytes())
    )


def test_a_certificate_of_another_authority_or_key_is_made_anew(tmp_path: Path) -> None:
    set_up(tmp_path)
    place = tmp_path / "authority" / "tls.pem"
    foreign = Authority.make().issue(["localhost", "127.0.0.1", "::1"], 100)
    own = place.read_bytes()
    place.unlink()
    place.write_bytes(foreign)
    assert "not issued by this authority" in set_up(tmp_path, "--name", "localhost")
    mixed = foreign[: foreign.index(b"-----BEGIN CERT")] + own[own.index(b"-----BEGIN CERT") :]
    place.unlink()
    place.write_bytes(mixed)
    assert "its key does not match it" in set_up(tmp_path)


def test_new_tokens_replace_both_and_the_masters_key_and_nothing_else(tmp_path: Path) -> None:
    set_up(tmp_path)
    before = files_of(tmp_path)
    told = set_up(tmp_path, "--new-tokens")
    assert "Made a join token." in told and "Made a client token." in told
    after = files_of(tmp_path)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if "token" in name or "tls" in name}
    assert after["master/join-token"] == after["agent/join-token"] != after["master/client-token"]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_token_that_nobody_could_send_is_made_anew(tmp_path: Path, content: bytes) -> None:
    set_up(tmp_path)
    (tmp_path / "authority" / "join-token").unlink()
    (tmp_path / "authority" / "join-token").write_bytes(content)
    assert set_up(tmp_path) == "Made a join token.\n"
    assert re.fullmatch(rb"[0-9a-f]{64}", (tmp_path / "agent" / "join-token").read_bytes())


def encrypted(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a password"),
        )
        + pem[pem.index(b"-----BEGIN CERT") :]
    )


@pytest.mark.parametrize("damage", ["empty", "cut", "encrypted", "another key"])
def test_a_damaged_authority_is_not_replaced_by_itself(tmp_path: Path, damage: str) -> None:
    set_up(tmp_path)
    place = tmp_path / "authority" / "authority.pem"
    pem, other = place.read_bytes(), Authority.make().pem
    begin = b"-----BEGIN CERT"
    content = {
        "empty": b"",
        "cut": pem[:300],
        "encrypted": encrypted(pem),
        "another key": other[: other.index(begin)] + pem[pem.index(begin) :],
    }[damage]
    place.unlink()
    place.write_bytes(content)
    before = files_of(tmp_path)
    done = run(tmp_path, "--name", "new.example")
    assert done.returncode == 1
    assert "authority.pem cannot be used" in done.stderr and "backup" in done.stderr
    assert "Traceback" not in done.stderr
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "gpu1:8470"], "without a port"),
        (["--name", "[::1]"], "without a port"),
        (["--name", "a b,c/d"], "c/d"),
        (["--days", "0"], "at least 1"),
        (["--owner", "root"], "in numbers"),
        (["--state", "/s"], "require --owner"),
        (["--data", "/d"], "require --owner"),
    ],
)
def test_bad_usage_makes_nothing(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run(tmp_path / "made", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "made").exists()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to others")


@needs_root
def test_each_file_is_its_owners(tmp_path: Path) -> None:
    state, data = tmp_path / "state", tmp_path / "data"
    set_up(tmp_path / "made", "--owner", f"{NOBODY}:7", "--state", str(state), "--data", str(data))
    owners = {
        str(path.relative_to(tmp_path / "made")): (path.stat().st_uid, path.stat().st_gid)
        for path in (tmp_path / "made").rglob("*")
        if path.is_file()
    }
    assert owners == {name: (NOBODY, 7) if name.startswith(("master/", "client/")) else (0, 0) for name in MODES}
    assert [(folder.stat().st_uid, folder.stat().st_gid) for folder in (state, data)] == [(NOBODY, 7)] * 2
    (data / "input").write_text("")
    set_up(tmp_path / "made", "--owner", str(NOBODY), "--data", str(data))
    assert (data / "uploads").stat().st_uid == (data / "outputs").stat().st_uid == NOBODY
    (state / "jobs" / "one").mkdir(parents=True)
    (state / "jobs" / "one" / "rows").write_text("an earlier owner's")
    (state / "jobs" / "elsewhere").symlink_to(data / "input")
    set_up(tmp_path / "made", "--owner", str(NOBODY), "--state", str(state))
    assert {path.stat(follow_symlinks=False).st_uid for path in state.rglob("*") if not path.is_symlink()} == {NOBODY}
    assert (data / "input").stat().st_uid == 0
    # Without an owner, files keep theirs.
    set_up(tmp_path / "made", "--new-tokens")
    assert (tmp_path / "made" / "master" / "client-token").stat().st_uid == NOBODY


@needs_root
@pytest.mark.parametrize("place", ["state", "data", "data/uploads"])
def test_a_link_is_not_followed_when_an_owner_is_changed(tmp_path: Path, place: str) -> None:
    """Scripts can write in a data folder: a link there must not make root give anything else away."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("root's")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(secret)
    option = f"--{place.split('/')[0]}"
    done = run(tmp_path / "made", "--owner", str(NOBODY), option, str(tmp_path / place.split("/")[0]))
    assert done.returncode == 1
    assert f"{tmp_path / place} is a link" in done.stderr and f"give it to user {NOBODY}" in done.stderr
    assert {path.stat().st_uid for path in (secret, secret / "key")} == {0}


AS_NOBODY = f"""\
import argparse, gettext, os, shutil, sys
from pathlib import Path
from windrow_master.setup.__main__ import main, set_up
set_up(Path(sys.argv.pop(1)), [], 1, None)  # imports whatever there is to import: the interpreter may be in root's home
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
sys.exit(main())
"""


@needs_root
def test_only_root_gives_files_away(tmp_path: Path) -> None:
    def run_as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", AS_NOBODY, str(tmp_path), "--folder", folder, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    # Not below tmp_path, into which nobody else may look.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        done = run_as_nobody("--owner", "4321")
        assert done.returncode == 1
        assert "cannot be given to user 4321" in done.stderr and "Run this as root" in done.stderr
        assert not [path for path in Path(folder).rglob("*") if "partial" in path.name], "no half of a secret is left"
        assert run_as_nobody().returncode == 0
        assert run_as_nobody("--owner", str(NOBODY)).returncode == 0
