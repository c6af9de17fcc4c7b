"""What is wrong with an epilogue function is said with its line."""

from __future__ import annotations

import linecache
import os
import sys
from types import TracebackType
from typing import Any, NoReturn

_FOLDER = os.path.dirname(__file__) + os.sep  # code of which is no caller's


class EpilogueError(ValueError):
    """What is wrong with an epilogue function, and in which line."""


def refuse(reason: str) -> NoReturn:
    """In the line of the caller's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    raise EpilogueError(_located(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno, reason))


def _located(function: str, file: str, line: int, reason: str) -> str:
    source = linecache.getline(file, line).strip()
    return f"{function}, line {line} of {file}: {reason}" + (f"\n    {source}" if source else "")


def rethrow(error: Exception, code: Any) -> NoReturn:
    """What Python itself, or a library, refused, with the line of the function."""
    line, frames = code.co_firstlineno, error.__traceback__
    while isinstance(frames, TracebackType):
        if frames.tb_frame.f_code is code:
            line = frames.tb_lineno
        frames = frames.tb_next
    raise EpilogueError(_located(code.co_name, code.co_filename, line, f"{type(error).__name__}: {error}")) from error
