"""The printed scripts in bash, zsh and fish: at a terminal, words are completed with the tab key."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfl.__main__ import main

COMMANDS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
FIRST = {"bash": "", "zsh": "autoload -U compinit && compinit -u -D; ", "fish": ""}
PATIENCE_S = 60

RAYFL = """\
#!/bin/sh
if [ -n "$_ARGCOMPLETE" ]; then exec "{python}" -m rayfl "$@"; fi
printf '<ran>'; printf '[%s]' "$@"; printf '<end>\\n'
"""
"""Completes as rayfl does; run as a command, it shows its arguments."""


class Terminal:
    """An interactive shell."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        spawn = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *command]
        self._process = subprocess.Popen(
            spawn, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        assert self._process.stdin
        assert self._process.stdout
        self._keyboard, self._screen = self._process.stdin, self._process.stdout
        self._said = ""

    def type(self, keys: str) -> None:
        """Types keys, which the shell takes one after the other."""
        self._keyboard.write(keys.encode())

    def wait_for(self, text: str) -> str:
        """What the shell prints before `text`; fails if that does not come."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._said:
            assert select.select([self._screen], [], [], max(0, deadline - time.monotonic()))[0], self._said
            more = self._screen.read(65536)
            assert more, self._said
            self._said += more.decode(errors="replace")
        before, _, self._said = self._said.partition(text)
        return before

    def close(self) -> None:
        """Ends the shell, by closing its terminal."""
        self._process.kill()
        self._process.wait()
        self._keyboard.close()
        self._screen.close()


@pytest.fixture(params=COMMANDS)
def terminal(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    """A shell that has read the script that `rayfl completion` prints for it."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "rayfl"
    command.write_text(RAYFL.format(python=sys.executable))
    command.chmod(0o755)
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "RAYFL_CACHE": str(tmp_path / "cache"),
        "TERM": "dumb",
    }
    opened = Terminal(COMMANDS[shell], environment)
    opened.type(f"{FIRST[shell]}source '{script}'; rayfl ready\n")
    opened.wait_for("<ran>[ready]<end>")
    yield opened
    opened.close()


TYPED = [
    ("run femnist_cycl\t--ba\tinl\t", ["run", "femnist_cyclic", "--backend", "inline"]),
    (
        "run femnist_cyclic --quick phases.cyc\tro\t7",
        ["run", "femnist_cyclic", "--quick", "phases.cyclic.rounds=7"],
    ),
]


def test_the_tab_key_completes_words(terminal: Terminal) -> None:
    for typed, arguments in TYPED:
        terminal.type(f"rayfl {typed}\n")
        terminal.wait_for("<ran>")
        assert terminal.wait_for("<end>") == "".join(f"[{argument}]" for argument in arguments)
