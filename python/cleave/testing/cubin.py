"""What a compiled kernel consists of, counted in its machine code."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Since Volta an instruction has 16 bytes, and its lowest 12 bits say what it does; the lowest 9 of
# those without where its operands are.
_INSTRUCTION_BYTES = 16
_OPCODE, _OPERATION = 0xFFF, 0x1FF
_NOP = 0x918  # fills up the end
_RECIPROCAL = 0x108  # MUFU


@dataclass(frozen=True)
class CodeCounts:
    """instructions: all but fillers. reciprocals: of the special function unit, such as begin each
    division of integers by a number that the compiler does not know."""

    instructions: int
    reciprocals: int


def count(cubin: bytes) -> CodeCounts:
    """Counts for all functions in a 64-bit ELF file. ValueError if it is none."""
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("a cubin begins with the bytes of a 64-bit ELF file; this does not")
    opcodes = [
        struct.unpack_from("<Q", code, at)[0] & _OPCODE
        for code in _functions(cubin)
        for at in range(0, len(code), _INSTRUCTION_BYTES)
    ]
    return CodeCounts(
        instructions=sum(opcode != _NOP for opcode in opcodes),
        reciprocals=sum(opcode & _OPERATION == _RECIPROCAL for opcode in opcodes),
    )


def _functions(cubin: bytes) -> Iterator[bytes]:
    """The contents of the sections .text.*"""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)

    def section(index: int) -> tuple[int, int, int]:
        """Where its name, its contents and its end are."""
        name, _, _, _, begin, length = struct.unpack_from("<IIQQQQ", cubin, table + index * size)
        return name, begin, begin + length

    _, name_begin, _ = section(names)
    for index in range(count):
        name, begin, end = section(index)
        if cubin.startswith(b".text.", name_begin + name):
            yield cubin[begin:end]
