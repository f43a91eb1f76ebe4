"""kwire completion: prints the script by which a shell completes commands, options and choices."""

import argparse

from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.shell_scripts import SCRIPTS

USE = """\
to use it in this shell:
  bash   source <(kwire completion bash)
  zsh    source <(kwire completion zsh)      (after compinit)
  fish   kwire completion fish | source

to use it in every shell:
  bash   kwire completion bash > ~/.local/share/bash-completion/completions/kwire
  zsh    kwire completion zsh > "${fpath[1]}/_kwire"
  fish   kwire completion fish > ~/.config/fish/completions/kwire.fish
"""


def add(parser: CommandParser) -> None:
    parser.epilog = USE
    parser.add_argument("shell", metavar="SHELL", choices=SCRIPTS, help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    print(SCRIPTS[options.shell], end="")
