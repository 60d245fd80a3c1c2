"""Files of users: keys and no passwords; who can check a user cannot pass for it; `headwater users`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headwater import Event, u32
from headwater.cli import main
from headwater.errors import ConfigError
from headwater.federation.security.identity import Identity
from headwater.federation.security.proof import Credential
from headwater.federation.security.user_file import UserFile
from headwater.federation.security.user_keys import UserKeys, signing_key
from headwater.security import Rule, Security
from tests.federation.nodes import GUARD, Log, eventually, nodes


class Sighting(Event):
    badge: u32


PASSWORDS = {"ann": "correct horse", "bob": "battery staple"}


RULES = [Rule("**", "group:staff"), Rule("doors", "*", ("advertise",))]


def written(path: Path, **groups: tuple[str, ...]) -> Path:
    file = UserFile(path)
    for name, password in PASSWORDS.items():
        file.add(name, password, groups.get(name, ()))
    file.save()
    return path


def security(path: Path, user: str) -> Security:
    return Security(user=user, password=PASSWORDS[user], users=path, rules=RULES)


def test_nodes_know_each_other_by_keys_in_a_file(tmp_path: Path) -> None:
    users = written(tmp_path / "users", ann=("staff",))
    with nodes() as make:
        lab = make("lab", security=security(users, "ann"))
        desk = make("desk", connect=lab.endpoints[0], security=security(users, "bob"))
        make.together(lab, desk)
        heard: Log[Sighting] = Log()
        subscription = lab.channel("doors", Sighting).subscribe(heard)  # ann, who is of the staff, may
        refused = desk.channel("lights", Sighting).subscribe(print)  # bob is not
        lab.channel("lights", Sighting).source()
        source = desk.channel("doors", Sighting).source()
        eventually(lambda: refused.refused)
        assert "group:staff" in str(refused.refused) or "may not" in str(refused.refused)
        lab.ready(GUARD)
        source.publish(Sighting(7))
        eventually(lambda: [each.badge for each in heard.events] == [7])
        assert not subscription.refused


def test_a_file_of_users_holds_nothing_that_proves_anything(tmp_path: Path) -> None:
    text = written(tmp_path / "users").read_text()
    node = Identity.ephemeral("lab")
    proof = Credential("ann", PASSWORDS["ann"]).prove("home", node.id, node.public)
    keys = UserKeys.read(text.splitlines()[0].partition(":")[2])
    message = b"\0".join((b"headwater proof 2", b"home", node.id.encode(), node.public))
    assert keys.verifies(proof, message)
    assert not keys.verifies(proof, message.replace(b"home", b"away"))
    assert not keys.verifies(b"", message) and not keys.verifies(bytes(64), message)
    for secret in (PASSWORDS["ann"], signing_key("ann", PASSWORDS["ann"]).private_bytes_raw().hex()):
        assert secret not in text
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600


def test_one_password_of_two_users_makes_different_keys() -> None:
    ann, bob = UserKeys.of("ann", "the same one"), UserKeys.of("bob", "the same one")
    assert ann.public != bob.public and ann.login != bob.login
    assert UserKeys.read(str(ann)) == ann and ann.login not in repr(ann)


@pytest.mark.parametrize(
    "text", ["", "scrypt1", "scrypt2:aa:bb", "scrypt1:" + "a" * 64, f"scrypt1:{'A' * 64}:{'a' * 64}"]
)
def test_what_are_no_keys(text: str) -> None:
    with pytest.raises(ValueError, match=r"keys of another kind|two keys of 64 digits"):
        UserKeys.read(text)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "users"

    def run(*words: str, given: str = "") -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        return main(["users", words[0], str(file), *words[1:]])

    assert run("add", "ann", "--group", "staff", "--group", "security", given="correct horse\n") == 0
    assert run("add", "bob", given="battery staple") == 0
    assert run("add", "ann", "--group", "staff", given="another horse\n") == 0
    capsys.readouterr()
    assert run("list") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[-2:]] == [
        ["ann", "staff", "keys"],
        ["bob", "keys"],
    ]
    known = Security(user="bob", password="battery staple", users=file).users_by_name()
    assert known["ann"].keys == UserKeys.of("ann", "another horse") and known["ann"].groups == ("staff",)
    assert run("remove", "bob") == 0
    assert run("remove", "bop") != 0 and "there are ann" in capsys.readouterr().err
    assert [line.user for line in UserFile(file)] == ["ann"]


def test_a_file_of_old_is_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "users"
    file.write_text("# ours\nann:correct horse\n\nbob:battery staple\n")
    with pytest.raises(ConfigError, match="headwater users convert"):
        security(file, "ann")
    assert main(["users", "convert", str(file)]) == 0
    assert "ann, bob had a password in it" in capsys.readouterr().out
    assert file.read_text().startswith("# ours\nann:scrypt1:") and "horse" not in file.read_text()
    assert security(file, "ann").users_by_name()["bob"].keys == UserKeys.of("bob", "battery staple")
    assert main(["users", "convert", str(file)]) == 0
    assert "nobody had" in capsys.readouterr().out


def test_users_that_cannot_be(tmp_path: Path) -> None:
    file = UserFile(tmp_path / "users")
    with pytest.raises(ConfigError) as error:
        file.add("a:b", "short", ["x,y"])
    said = str(error.value)
    assert all(text in said for text in ("a name without a colon", "8 to 1024 printable", "without a colon or comma"))
    assert "short" not in said
    assert main(["users", "list", str(tmp_path / "none")]) != 0
