"""The tensors of a checkpoint, read when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Size, Tensor

_INDEX = "model.safetensors.index.json"


class Files(Mapping[str, Tensor]):
    """What a folder's safetensors files hold, by name, on the CPU."""

    def __init__(self, folder: Path) -> None:
        try:
            from safetensors import safe_open
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "checkpoint is a path, and there is no safetensors; run `pip install safetensors`, or pass a dict of "
                "names and tensors",
                name="safetensors",
            ) from None
        self._file: dict[str, Any] = {}
        for path in _paths(folder):
            file = safe_open(path, "pt")
            self._file.update(dict.fromkeys(file.keys(), file))

    def __getitem__(self, name: str) -> Tensor:
        return self._file[name].get_tensor(name)

    def shape(self, name: str) -> Size:
        return Size(self._file[name].get_slice(name).get_shape())

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)


def _paths(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.exists():
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        return [folder / name for name in names]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise FileNotFoundError(f"{folder} has no *.safetensors; pass a model's folder, or a dict of names and tensors")
    return found


def quantization_config(folder: Path) -> Mapping[str, Any] | None:
    """That of config.json, or of the text model in it, or ModelOpt's own file."""
    config = _json(folder / "config.json")
    for part in (config, config.get("text_config", {})):
        for key in ("quantization_config", "compression_config"):
            if part.get(key):
                return part[key]
    return _json(folder / "hf_quant_config.json").get("quantization")


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.exists() else {}
