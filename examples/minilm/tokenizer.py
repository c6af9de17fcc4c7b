"""WordPiece: a sentence as pieces of a fixed vocabulary, as uncased BERT models expect it."""

from __future__ import annotations

import functools
import string
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

# Longer words are never in the vocabulary's training text: one unknown piece.
_LONGEST_WORD = 100
_DROPPED = ("Cc", "Cf", "Co", "Cs", "Mn")  # control characters, accents
_CJK = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class Tokenizer:
    """Sentences to numbers of pieces, between [CLS] and [SEP]; `##` marks the rest of a word."""

    def __init__(self, vocabulary: Sequence[str], max_tokens: int):
        """max_tokens: what a sentence is cut to, the two marks included."""
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._max_tokens = max_tokens

    def encode(self, sentence: str) -> list[int]:
        pieces = [piece for word in words(sentence) for piece in self._split(word)]
        marked = ["[CLS]", *pieces[: self._max_tokens - 2], "[SEP]"]
        return [self._ids[piece] for piece in marked]

    def batch(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """ids, int64, padded to the longest sentence, and which of them are no padding, bool."""
        encoded = [self.encode(sentence) for sentence in sentences]
        mask = np.arange(max(map(len, encoded))) < np.array([[len(ids)] for ids in encoded])
        ids = np.full(mask.shape, self._ids["[PAD]"], np.int64)
        ids[mask] = np.concatenate(encoded)
        return ids, mask

    def _split(self, word: str) -> Iterator[str]:
        """The longest piece that begins the word, then the longest that goes on, to its end."""
        pieces, start = [], 0
        while start < len(word) <= _LONGEST_WORD:
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                if mark + word[start:end] in self._ids:
                    pieces.append(mark + word[start:end])
                    start = end
                    break
            else:
                break
        yield from pieces if start == len(word) else ["[UNK]"]


def words(text: str) -> list[str]:
    """Lower-case words without accents; punctuation marks and ideographs are words of their own."""
    return "".join(map(_place, unicodedata.normalize("NFD", text))).split()


@functools.cache
def _place(character: str) -> str:
    """What a character of decomposed text becomes: nothing, a space, itself, or itself apart."""
    category = unicodedata.category(character)
    if character in "\t\n\r" or category[0] == "Z":
        return " "
    if category in _DROPPED or character == "\N{REPLACEMENT CHARACTER}":
        return ""
    if category[0] == "P" or character in string.punctuation or _is_ideograph(character):
        return f" {character} "
    return character.lower()


def _is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _CJK)
