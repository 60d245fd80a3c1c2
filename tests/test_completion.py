"""Completion of the command line: tried in bash; what zsh and fish are given has everything, too."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import headwater
from headwater.cli import main, make_parser
from headwater.completion import SHELLS, places, script
from headwater.python_versions import Interpreter

PLACES = list(places(make_parser()))
# Completes a line as bash does when Tab is pressed at its end, and prints what there is to choose from.
ASK = """
set -u
eval "$(cat "$1")"; shift
COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMP_KEY=9
compopt() { :; }
_headwater headwater "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]:-}"
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bash") / "completion.bash"
    made.write_text(script("bash", make_parser()))
    return made


def choices(file: Path, *words: str, cwd: Path | None = None) -> set[str]:
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", ASK, "bash", str(file), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=cwd,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return set(done.stdout.split())


def test_commands_options_and_values_in_bash(file: Path, tmp_path: Path) -> None:
    (tmp_path / "node.toml").touch()
    assert choices(file, "headwater", "expl") == {"explain"}
    assert choices(file, "headwater", "") >= {"explain", "node", "listen", "publish", "log", "backtest", "completion"}
    assert choices(file, "headwater", "--v") == {"--version"}
    assert choices(file, "headwater", "completion", "") == set(SHELLS)
    assert choices(file, "headwater", "log", "v") == {"verify"}
    assert "--where" in choices(file, "headwater", "listen", "ie.tcd.sighting", "--w")
    assert choices(file, "headwater", "explain", "--notation", "e") == {"ecode"}
    assert choices(file, "headwater", "explain", "--notation", "=", "p") == {"predicate", "python"}
    assert choices(file, "headwater", "node", "--config", "no", cwd=tmp_path) == {"node.toml"}
    assert choices(file, "headwater", "backtest", "no", cwd=tmp_path) == {"node.toml"}
    assert choices(file, "headwater", "listen", "--where", "", cwd=tmp_path) == set()  # any text
    # A value that is called like a command is none.
    assert "--asm" in choices(file, "headwater", "explain", "--type", "log", "--as")


def test_bash_takes_it_up_as_it_is_told_to(file: Path) -> None:
    """As in ~/.bashrc, in a shell that has completion; with the command itself."""
    bash = shutil.which("bash")
    assert bash is not None
    ask = 'eval "$(cat "$1")" && complete -p headwater'
    done = subprocess.run([bash, "--norc", "-c", ask, "bash", str(file)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "complete -F _headwater headwater", done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert len(PLACES) > 15 and {"headwater log list", "headwater certificates issue"} <= {each.path for each in PLACES}
    for place in PLACES:
        assert place.path in text
        for option in place.options:
            for name in option.names:
                assert (f"-l {name[2:]} " if shell == "fish" and name.startswith("--") else name) in text, name
        assert all(name in text for name in place.commands)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert headwater.__version__ == project["version"]
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    first, second = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and first == f"headwater {project['version']}"
    assert second.startswith(f"on {Interpreter.here()}.") and "events are encoded, decoded and published " in second
