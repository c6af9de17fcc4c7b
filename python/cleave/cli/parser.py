"""An argument parser that says what was meant."""

from __future__ import annotations

import argparse
import difflib
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Refuses an unknown option with the usage of the command that it was given to, and the option
    nearest to it; an unknown command with the nearest command, or with what an action's `refused` says of it;
    and, where something is missing, shows the first example of the epilog."""

    def error(self, message: str) -> NoReturn:
        if (self.epilog or "").startswith("Example") and "are required" in message:
            example = self.epilog.partition(": ")[2].partition("; ")[0]
            message += f". For example: {example}"
        super().error(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        namespace, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._guess(rest[0])}")
        return namespace, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = difflib.get_close_matches(str(value), map(str, action.choices or ()), 1)
            if refused := getattr(action, "refused", {}).get(str(value)):
                error.message = refused
            elif near:
                error.message += f". Did you mean {near[0]}?"
            raise

    def _guess(self, argument: str) -> str:
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = difflib.get_close_matches(argument.partition("=")[0], options, 1)
        return f". Did you mean {near[0]}?" if near else ""
