"""Option values: lists and ranges, so that one command line spans a family of problems.

128             one value
128,256,384     a list
1024:8192:1024  from 1024 to 8192 in steps of 1024; the end is included when a step meets it
1024:65536:*2   the same, multiplying
1,8:64:*2,100   any mixture
3,3x5           of an image's axes: 3 along each, or 3 along the height and 5 along the width
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _core
from ..testing import case, dtypes
from ..testing.group_sizes import SPREADS

# A range that expands to more values than this is a mistyped step.
MAX_RANGE_LENGTH = 10_000

DTYPES = {spelling: name for name, known in dtypes.DTYPES.items() for spelling in (name, *known.short)}
OPERAND_DTYPES = {spelling: name for spelling, name in DTYPES.items() if name != "int32"}
LAYOUTS = ("tn", "nn", "nt", "tt")
DIVISIONS = _core.choices["division"]
KERNELS = _core.choices["kernel"]
PRECISIONS = _core.choices["precision"]
SPLIT_K_MODES = _core.choices["split_k_mode"]
ACTIVATIONS = _core.choices["activation"]
BIASES = _core.choices["bias"]
GROUP_BIASES = ("none", "row")  # of convolutions, too
SCALINGS = tuple(case.SCALINGS)
# Groups have a scale for each row, or for each block.
GROUP_SCALINGS = tuple(name for name in SCALINGS if name != "tensor")
# How D gets its scales; None: it has none, or a static one.
OUT_SCALES = {"none": None, "block_1x128": "block_1x128"}
SCALE_MAJORS = ("k", "mn")
FLOAT_DTYPES = {spelling: name for spelling, name in DTYPES.items() if name in dtypes.FLOATS}
LORA_DTYPES = {spelling: name for spelling, name in FLOAT_DTYPES.items() if name != "float32"}
SCORING_FUNCS = _core.choices["scoring_func"]
DETERMINISMS = {"yes": True, "batch_invariant": "batch_invariant"}
SUM_ORDERS = {"none": None, "k": "k"}
WEIGHTS = tuple(case.WEIGHTS)
FLAGS = {"no": False, "yes": True}


def integers(minimum: int) -> Callable[[str], list[int]]:
    """Parser of a list of integers and ranges, each at least `minimum`."""

    def parse(text: str) -> list[int]:
        values = [value for part in _parts(text) for value in _expand(part)]
        return _unique([_at_least(minimum, value) for value in values])

    return parse


def extents(minimum: int) -> Callable[[str], list[int | tuple[int, ...]]]:
    """Parser of a list of extents: 3 along every axis, or 3x5 along each."""

    def parse(text: str) -> list[int | tuple[int, ...]]:
        return _unique([_along_axes(part, minimum) for part in _parts(text)])

    return parse


def paddings(text: str) -> list[Any]:
    """The same; an axis may have 0-1, zeros before and after the image."""

    def parse(part: str) -> Any:
        if "-" not in part:
            return _along_axes(part, 0)
        axes = [_along_axes(axis.replace("-", "x"), 0) for axis in part.split("x")]
        if any(isinstance(axis, tuple) and len(axis) > 2 for axis in axes):
            raise argparse.ArgumentTypeError(f"'{part}': an axis has two ends, as in 0-1x2")
        return tuple(axes)

    return _unique([parse(part) for part in _parts(text)])


def slices(text: str) -> list[int | None]:
    """Slice counts; 'auto' stands for the planner's choice (None)."""
    values: list[int | None] = []
    for part in _parts(text):
        values += [None] if part == "auto" else integers(1)(part)
    return _unique(values)


def weight_groups(text: str) -> list[int | None]:
    """Columns that share a scale; 'auto' stands for the format's own (None), 'rows' for all (-1)."""
    names = {"auto": None, "rows": -1}
    values: list[int | None] = []
    for part in _parts(text):
        values += [names[part]] if part in names else integers(1)(part)
    return _unique(values)


def group_sizes(text: str) -> list[str | tuple[int, ...]]:
    """Names of SPREADS, or the sizes of all groups: a list, or a file of numbers."""
    if text.startswith("@"):
        try:
            text = ",".join(Path(text[1:]).read_text().replace(",", " ").split())
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"'{text}' cannot be read: {error}") from None
    elif not text[:1].isdigit():
        return words(SPREADS)(text)
    sizes = tuple(value for part in _parts(text) for value in _expand(part))
    if min(sizes) < 0:
        raise argparse.ArgumentTypeError(f"{min(sizes)} is no size of a group")
    return [sizes]


def words(allowed: Sequence[str] | Mapping[str, Any]) -> Callable[[str], list[Any]]:
    """Parser of a list of names; a mapping also says what each spelling means."""
    meaning = allowed if isinstance(allowed, Mapping) else {word: word for word in allowed}

    def parse(text: str) -> list[Any]:
        for part in _parts(text):
            if part not in meaning:
                raise argparse.ArgumentTypeError(f"'{part}' is not one of {', '.join(meaning)}{_guess(part, meaning)}")
        return _unique([meaning[part] for part in _parts(text)])

    return parse


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def count_or_all(text: str) -> int | None:
    """None for 'all'."""
    return None if text == "all" else positive(text)


def device(text: str) -> str:
    """'cpu', 'cuda', 'cuda:1', 'h100' or 'h200'; 'cuda' becomes 'cuda:0'."""
    if text == "cuda":
        return "cuda:0"
    kind, _, index = text.partition(":")
    if text in ("cpu", "h100", "h200") or (kind == "cuda" and index.isdecimal()):
        return text
    known = ("cpu", "cuda", "cuda:<index>", "h100", "h200")
    raise argparse.ArgumentTypeError(f"'{text}' is not one of {', '.join(known)}{_guess(text, known)}")


# Spelled unlike what is meant.
_ALSO_CALLED = {"half": "float16", "float": "float32", "fp8": "float8_e4m3fn"}


def _guess(text: str, known: Iterable[str]) -> str:
    known = list(known)
    other = _ALSO_CALLED.get(text.lower())
    near = [other] if other in known else difflib.get_close_matches(text.lower(), known, 1)
    return f". Did you mean {near[0]}?" if near else ""


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty entry")
    return parts


def _along_axes(part: str, minimum: int) -> int | tuple[int, ...]:
    values = [_at_least(minimum, _integer(axis, part)) for axis in part.split("x")]
    return tuple(values) if len(values) > 1 else values[0]


def _at_least(minimum: int, value: int) -> int:
    if value < minimum:
        raise argparse.ArgumentTypeError(f"{value} is below the minimum of {minimum}")
    return value


def _expand(part: str) -> list[int]:
    fields = part.split(":")
    if len(fields) == 1:
        return [_integer(part, part)]
    if len(fields) != 3:
        raise argparse.ArgumentTypeError(f"'{part}': a range is start:stop:step or start:stop:*factor")
    start, stop = _integer(fields[0], part), _integer(fields[1], part)
    factor = fields[2].startswith("*")
    step = _integer(fields[2].lstrip("*"), part)
    if start > stop or (factor and (step < 2 or start < 1)) or (not factor and step < 1):
        raise argparse.ArgumentTypeError(f"'{part}' does not climb from its start to its stop")
    values = []
    while start <= stop:
        values.append(start)
        if len(values) > MAX_RANGE_LENGTH:
            raise argparse.ArgumentTypeError(f"'{part}' has more than {MAX_RANGE_LENGTH} values")
        start = start * step if factor else start + step
    return values


def _integer(text: str, context: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    guess = ""
    if text[:-1].isdecimal() and text[-1] in "kK":
        guess = f". Did you mean {1024 * int(text[:-1])}?"
    raise argparse.ArgumentTypeError(f"'{context}': '{text}' is not an integer{guess}")


def _unique(values: list) -> list:
    return list(dict.fromkeys(values))
