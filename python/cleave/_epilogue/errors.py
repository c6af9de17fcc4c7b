"""What is wrong with an epilogue function is said with its line."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, TracebackType
from typing import NoReturn

from .. import _mistakes

# Code of these is no caller's.
_OURS = (os.path.dirname(__file__) + os.sep, _mistakes.__file__)


INSTEAD = "use Python's operators and Cleave's functions: cleave.exp, cleave.where ..."


class EpilogueError(ValueError):
    """What is wrong with an epilogue function, and in which line."""

    reason = ""  # without the line


def refuse(reason: str) -> NoReturn:
    """In the line of the caller's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    raise _located(frame.f_code, frame.f_lineno, reason)


def _located(code: CodeType, line: int, reason: str) -> EpilogueError:
    source = linecache.getline(code.co_filename, line).strip()
    error = EpilogueError(
        f"{code.co_name}, line {line} of {code.co_filename}: {reason}" + (f"\n    {source}" if source else "")
    )
    error.reason = reason
    return error


def rethrow(error: Exception, code: CodeType) -> NoReturn:
    """What Python itself, or a library, refused, with the line of the function."""
    line, frames = code.co_firstlineno, error.__traceback__
    while isinstance(frames, TracebackType):
        if frames.tb_frame.f_code is code:
            line = frames.tb_lineno
        frames = frames.tb_next
    remedy = f"; {INSTEAD}" if "Value" in str(error) else ""
    raise _located(code, line, f"{type(error).__name__}: {error}{remedy}") from error


def rethrow_of_returned(error: EpilogueError, code: CodeType) -> NoReturn:
    """What was refused when the function had returned, with its last line."""
    raise _located(code, max(line for *_, line in code.co_lines() if line), error.reason) from None
