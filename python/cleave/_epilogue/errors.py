"""What is wrong with an epilogue function is said with its line."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Mapping
from types import CodeType, TracebackType
from typing import NoReturn

from .. import _mistakes

# Code of these is no caller's.
_OURS = (os.path.dirname(__file__) + os.sep, _mistakes.__file__)


# What EpilogueFunction says of a line of its text.
_OF_TEXT = re.compile(r"line (\d+) of the epilogue function: ")


INSTEAD = "use Python's operators and Cleave's functions: cleave.exp, cleave.where ..."


Place = tuple[CodeType, int]  # a line of a file


class EpilogueError(ValueError):
    """What is wrong with an epilogue function, and in which line."""

    reason = ""  # without the line


def callers_place() -> Place:
    """The line of the caller's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


def refuse(reason: str) -> NoReturn:
    """In the line of the caller's code that has led here."""
    raise _located(*callers_place(), reason)


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
    raise _located(code, _last_line(code), error.reason) from None


def rethrow_of_text(error: ValueError, places: Mapping[int, Place], code: CodeType) -> NoReturn:
    """What was refused of the text of a function, with the line that a line of it was written for: `places`."""
    reason = str(error)
    place = code, _last_line(code)
    if found := _OF_TEXT.match(reason):
        reason, place = reason[found.end() :], places.get(int(found[1]), place)
    raise _located(*place, reason) from None


def _last_line(code: CodeType) -> int:
    return max(line for *_, line in code.co_lines() if line)
