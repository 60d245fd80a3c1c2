"""Completion of the command line in bash, zsh and fish, made from its parser: nothing runs Python while one types.

    eval "$(headwater completion bash)"                                   in ~/.bashrc
    eval "$(headwater completion zsh)"                                    in ~/.zshrc, after compinit
    headwater completion fish > ~/.config/fish/completions/headwater.fish

Each script knows the commands within commands, their options, the values of those that take one of some words, and
which take a file. Anything else is completed as a file, as the shell does by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COMMAND = "headwater"


@dataclass(frozen=True, slots=True)
class Option:
    """An option, or, without names, a positional argument that takes one of some words."""

    names: tuple[str, ...]
    help: str
    takes: bool  # a value
    words: tuple[str, ...] = ()  # one of these
    file: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A command: `path` is how it is called, as in "headwater log list"."""

    path: str
    commands: dict[str, str] = field(default_factory=dict)  # those within it, and what they do
    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()  # that its arguments may be


def places(parser: argparse.ArgumentParser, path: str = COMMAND) -> Iterator[Place]:
    """The command and all within it."""
    options, words = [], []
    within: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            within = dict(action.choices)
            helps = {each.dest: _plain(each.help) for each in action._choices_actions}
        elif action.option_strings:
            options.append(_option(action))
        else:
            words += [str(choice) for choice in action.choices or ()]
    yield Place(path, {name: helps.get(name, "") for name in within}, tuple(options), tuple(words))
    for name, sub in within.items():
        yield from places(sub, f"{path} {name}")


def _option(action: argparse.Action) -> Option:
    takes = action.nargs != 0 and action.nargs != "?"
    words = tuple(str(choice) for choice in action.choices or ()) if takes else ()
    return Option(tuple(action.option_strings), _plain(action.help), takes, words, takes and action.type is Path)


def _plain(help: str | None) -> str:
    """One line without anything that a shell would take for its own."""
    text = " ".join((help or "").split())
    return "".join("" if sign in "'\"`$\\:[]" else sign for sign in text.partition(" (default: %")[0])


def _quoted(words: Sequence[str]) -> str:
    return "'" + " ".join(words) + "'"


def _cases(keys: Sequence[str]) -> str:
    """Patterns of a `case`: any of these."""
    return "|".join(f"'{key}'" for key in keys) if keys else "''"


def _values(found: list[Place]) -> dict[str, Option]:
    """Options that take a value, by place and name."""
    return {f"{p.path} {name}": o for p in found for o in p.options if o.takes for name in o.names}


# ── bash ──


def bash(found: list[Place]) -> str:
    """A script for bash."""
    values = _values(found)
    lines = [
        '# Completion for headwater in bash:  eval "$(headwater completion bash)"',
        "_headwater() {",
        "    local cur prev at i",
        "    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at=headwater",
        "    if [[ $cur == '=' ]]; then cur=",
        "    elif [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        '        case "$at ${COMP_WORDS[i]}" in',
        f'            {_cases([p.path for p in found[1:]])}) at="$at ${{COMP_WORDS[i]}}" ;;',
        f"            {_cases(list(values))}) ((i++)) ;;",
        "        esac",
        "    done",
        "    COMPREPLY=()",
        '    case "$at $prev" in',
    ]
    for key, option in values.items():
        if option.words:
            lines.append(f"        '{key}') COMPREPLY=($(compgen -W {_quoted(option.words)} -- \"$cur\")); return ;;")
        elif option.file:
            lines.append(f"        '{key}') compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;")
        else:
            lines.append(f"        '{key}') return ;;")
    lines += ["    esac", "    local words=", '    if [[ $cur == -* ]]; then case "$at" in']
    lines += [f"        '{p.path}') words={_quoted([n for o in p.options for n in o.names])} ;;" for p in found]
    lines += ['    esac; else case "$at" in']
    lines += [
        f"        '{p.path}') words={_quoted([*p.commands, *p.words])} ;;" for p in found if p.commands or p.words
    ]
    lines += [
        "    esac; fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        '    if [[ -z $words && $cur != -* ]]; then compopt -o filenames; COMPREPLY=($(compgen -f -- "$cur")); fi',
        "}",
        "complete -F _headwater headwater",
    ]
    return "\n".join(lines) + "\n"


# ── zsh ──


def zsh(found: list[Place]) -> str:
    """A script for zsh."""
    values = _values(found)
    lines = [
        "#compdef headwater",
        '# Completion for headwater in zsh:  eval "$(headwater completion zsh)"  after compinit',
        "_headwater() {",
        "    local at=headwater word skip= prev=${words[CURRENT-1]}",
        "    local -a choices",
        "    for word in ${words[2,CURRENT-1]}; do",
        "        if [[ -n $skip ]]; then skip=; continue; fi",
        '        case "$at $word" in',
        f'            {_cases([p.path for p in found[1:]])}) at="$at $word" ;;',
        f"            {_cases(list(values))}) skip=1 ;;",
        "        esac",
        "    done",
        '    if [[ -n $skip ]]; then case "$at $prev" in',
    ]
    for key, option in values.items():
        if option.words:
            lines.append(f"        '{key}') compadd -- {' '.join(option.words)}; return ;;")
        elif option.file:
            lines.append(f"        '{key}') _files; return ;;")
    lines += ["        *) return ;;", "    esac; fi", '    if [[ $PREFIX == -* ]]; then case "$at" in']
    for p in found:
        described = " ".join(f"'{name}:{o.help}'" for o in p.options for name in o.names)
        lines.append(f"        '{p.path}') choices=({described}) ;;")
    lines += ['    esac; else case "$at" in']
    for p in found:
        if p.commands or p.words:
            described = " ".join([*(f"'{n}:{h}'" for n, h in p.commands.items()), *(f"'{w}'" for w in p.words)])
            lines.append(f"        '{p.path}') choices=({described}) ;;")
    lines += [
        "    esac; fi",
        "    if (( $#choices )); then _describe headwater choices; else _files; fi",
        "}",
        'if [[ $funcstack[1] == _headwater ]]; then _headwater "$@"; else compdef _headwater headwater; fi',
    ]
    return "\n".join(lines) + "\n"


# ── fish ──


def fish(found: list[Place]) -> str:
    """A script for fish."""
    lines = [
        "# Completion for headwater in fish:  ~/.config/fish/completions/headwater.fish",
        "function __headwater_at",
        "    set -l at headwater",
        "    set -l skip 0",
        "    for word in (commandline -opc)[2..-1]",
        "        if test $skip = 1; set skip 0; continue; end",
        '        switch "$at $word"',
        f"            case {' '.join(repr(p.path) for p in found[1:])}",
        '                set at "$at $word"',
        f"            case {' '.join(repr(key) for key in _values(found))}",
        "                set skip 1",
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
    ]
    for place in found:
        start = f"complete -c headwater -n '__headwater_at \"{place.path}\"'"
        for name, help in place.commands.items():
            lines.append(f"{start} -f -a '{name}' -d '{help}'")
        for word in place.words:
            lines.append(f"{start} -f -a '{word}'")
        for option in place.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            takes = f" -x -a {_quoted(option.words)}" if option.words else " -r" if option.file else " -x"
            lines.append(f"{start} {names}{takes if option.takes else ''} -d '{option.help}'")
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[list[Place]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script that has a shell complete the command of a parser."""
    return SHELLS[shell](list(places(parser)))


__all__ = ["SHELLS", "Option", "Place", "places", "script"]
