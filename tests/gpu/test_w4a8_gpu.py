"""Products of packed weights and activations of 8 bits on the GPU: exactly, in every mode and tile, and against
float64.

For exact results x holds small integers and scales are powers of two: sums of a group, and of groups, are exact then.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402
from cleave import _core  # noqa: E402

E4M3 = torch.float8_e4m3fn
BYTES = (E4M3, torch.int8)
MODES = ("none", "serial", "parallel", "cluster", "stream_k")
TILES = (
    "64x16", "64x64", "64x80", "64x128", "128x16", "128x32", "128x48", "128x112", "128x128", "256x16",
    "256x32", "256x48",
)  # fmt: skip
SIZES = ((1, 64, 256), (3, 200, 512), (17, 129, 1280), (64, 513, 768), (130, 384, 2304))


@pytest.fixture(autouse=True)
def hopper() -> None:
    skip_unless_served("sm90")


@dataclass
class Product:
    m: int
    n: int
    k: int
    group: int = 128
    dtype: torch.dtype = E4M3
    has_zeros: bool = False
    exact: bool = True
    weights: str = "int4"

    def __post_init__(self) -> None:
        shape = (self.k // self.group, self.n)
        codes = torch.randint(0, 16, (self.n, self.k), dtype=torch.uint8, device="cuda")
        zeros = torch.randint(0, 16, shape, dtype=torch.uint8, device="cuda") if self.has_zeros else None
        if self.weights == "mxfp4":
            scales = torch.randint(124, 128, shape, dtype=torch.uint8, device="cuda")
        elif self.exact:
            scales = 2.0 ** torch.randint(-3, 1, shape, device="cuda").half()
        else:
            scales = (torch.randn(shape, device="cuda") * 0.05).half()
        if self.exact:
            self.x = torch.randint(-3, 4, (self.m, self.k), device="cuda").to(self.dtype)
            self.scale = 2.0 ** torch.randint(-2, 3, (self.m,), device="cuda").float()
        else:
            self.x, self.scale = cleave.quantize(torch.randn(self.m, self.k, device="cuda"), self.dtype)
            self.scale = self.scale.reshape(-1)
        if self.weights == "nvfp4":
            scales, factor = scales.to(E4M3), torch.full((1,), 0.25, device="cuda")
        else:
            factor = None
        self.packed = cleave.pack_weights(
            codes, self.group, self.weights, scales=scales, zeros=zeros, global_scale=factor
        )
        self.out = torch.full((self.m, self.n), float("nan"), device="cuda")

    def run(self, **options) -> None:
        cleave.mixed_gemm(self.x, self.packed, scale_a=self.scale, out=self.out, **options)

    def run_as(self, kernel: str) -> None:
        zeros = " zeros" if self.has_zeros else ""
        name = _core.dtype_name(self.dtype, "dtype")
        sizes = f"{self.m}x{self.n}x{self.k}x1"
        plan = _core.plan_text(f"{sizes} tn {name} float32 scaled weights {self.weights} {self.group}{zeros}", "cuda")
        arrays = {"a": self.x, "b": self.packed.packed, "d": self.out, "scale_a": self.scale,
                  "weight_scale": self.packed.scales, "weight_zero": self.packed.zeros,
                  "scale_b": self.packed.global_scale}  # fmt: skip
        addresses = {name: array.data_ptr() for name, array in arrays.items() if array is not None}
        _core.run_at(_core.plan_as(plan, kernel), addresses, torch.cuda.current_stream().cuda_stream)

    def check(self) -> None:
        x, weight = self.x.double() * self.scale.double()[:, None], cleave.dequantize_weights(self.packed).double()
        sums = x @ weight.t()
        if self.exact:
            assert torch.equal(self.out.double(), sums), str(self)
        else:
            # A group's sum of 8-bit floats has about 13 bits.
            bound = (x.abs() @ weight.abs().t()) * (2.0**-12 if self.dtype == E4M3 else 2.0**-20) + 1e-6
            assert bool(((self.out.double() - sums).abs() <= bound).all()), str(self)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("group", [32, 64, 128, 256, "row"])
def test_groups(group: int | str, dtype: torch.dtype, has_zeros: bool) -> None:
    for m, n, k in SIZES:
        for exact in (True, False):
            product = Product(m, n, k, k if group == "row" else group, dtype, has_zeros, exact)
            product.run()
            product.check()


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("weights", "group"), [("mxfp4", 32), ("nvfp4", 16)])
def test_floats(weights: str, group: int, dtype: torch.dtype) -> None:
    for m, n, k in (*SIZES, (5, 70, 32), (20, 300, 992)):
        for exact in (True, False):
            product = Product(m, n, k, group, dtype, exact=exact, weights=weights)
            product.run()
            product.check()


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("mode", MODES)
def test_splits_of_short_groups(mode: str, dtype: torch.dtype) -> None:
    for m, n, k in ((1, 512, 4096), (40, 1000, 3072), (200, 520, 2048)):
        product = Product(m, n, k, 16, dtype, weights="nvfp4")
        product.run(split_k_mode=mode, split_k_slices=None if mode in ("none", "stream_k") else 4)
        product.check()


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("k", [16, 80, 144, 208, 1008])
def test_columns_that_fill_no_block(k: int, dtype: torch.dtype) -> None:
    for m, n in ((1, 64), (33, 300)):
        for has_zeros in (False, True):
            product = Product(m, n, k, k, dtype, has_zeros)
            product.run()
            product.check()


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("mode", MODES)
def test_splits(mode: str, dtype: torch.dtype) -> None:
    for m in (1, 16, 40, 200):
        for n, k in ((512, 4096), (1000, 3072)):
            product = Product(m, n, k, 64, dtype)
            product.run(split_k_mode=mode, split_k_slices=None if mode in ("none", "stream_k") else 4)
            product.check()


@pytest.mark.parametrize("split", ["", " parallel 3", " cluster 2"])
@pytest.mark.parametrize("shared", ["", " multicast 2x1"])
@pytest.mark.parametrize("tile", TILES)
def test_tiles(tile: str, shared: str, split: str) -> None:
    if (" cluster" in split and (shared or tile in ("64x128", "128x128"))) or (shared and tile == "64x16"):
        pytest.skip("not served")
    served = 0
    for m, n, k in ((24, 520, 1152), (260, 1096, 640)):
        for dtype, group, has_zeros, weights in (
            (E4M3, 128, False, "int4"), (torch.int8, 32, True, "int4"), (E4M3, 16, False, "nvfp4"),
            (torch.int8, 16, False, "nvfp4"), (torch.int8, 32, False, "mxfp4"),
        ):  # fmt: skip
            product = Product(m, n, k, group, dtype, has_zeros, weights=weights)
            try:
                product.run_as(f"sm90 {tile} transposed{shared}{split}")
            except ValueError as error:
                assert "cannot serve" in str(error)
                continue
            product.check()
            served += 1
    assert served > 0


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [[1, 0, 5, 130, 17], [64, 64, 64, 64], [0, 0, 3, 0]])
def test_groups_of_rows(sizes: list[int], mode: str, dtype: torch.dtype) -> None:
    experts, n, k = len(sizes), 200, 768
    codes = torch.randint(0, 16, (experts, n, k), dtype=torch.uint8, device="cuda")
    scales = 2.0 ** torch.randint(-3, 1, (experts, k // 64, n), device="cuda").half()
    packed = cleave.pack_weights(codes, 64, scales=scales)
    offs = torch.tensor(sizes, device="cuda").cumsum(0, dtype=torch.int32)
    x = torch.randint(-3, 4, (sum(sizes) + 9, k), device="cuda").to(dtype)
    scale = 2.0 ** torch.randint(-2, 3, (len(x), 1), device="cuda").float()
    d = cleave.mixed_gemm(x, packed, scale_a=scale, offs=offs, out_dtype="float32", split_k_mode=mode)
    weight = cleave.dequantize_weights(packed).double()
    for expert, (size, end) in enumerate(zip(sizes, offs.tolist(), strict=True)):
        rows = slice(end - size, end)
        assert torch.equal(d[rows].double(), (x[rows].double() * scale[rows].double()) @ weight[expert].t())
    assert not d[sum(sizes) :].any()


def test_epilogue() -> None:
    for dtype in BYTES:
        product = Product(70, 264, 1024, dtype=dtype)
        bias, c = torch.randn(264, device="cuda"), torch.randn(70, 264, device="cuda")
        d = cleave.mixed_gemm(product.x, product.packed, scale_a=product.scale, bias=bias, c=c, alpha=0.5, beta=2.0,
                              activation="relu", out_dtype="float32")  # fmt: skip
        sums = (product.x.double() * product.scale.double()[:, None]) @ cleave.dequantize_weights(
            product.packed
        ).double().t()
        expected = (0.5 * sums + 2.0 * c.double() + bias.double()).relu()
        torch.testing.assert_close(d.double(), expected, rtol=1e-6, atol=1e-4)


def test_runs_repeat_bit_by_bit() -> None:
    for mode in MODES:
        product = Product(24, 1000, 4096, exact=False)
        product.run(split_k_mode=mode)
        first = product.out.clone()
        for _ in range(20):
            product.out.fill_(float("nan"))
            product.run(split_k_mode=mode)
            assert torch.equal(product.out, first)


@pytest.mark.parametrize("dtype", BYTES)
def test_rows_do_not_depend_on_the_batch(dtype: torch.dtype) -> None:
    product = Product(300, 1000, 4096, dtype=dtype, exact=False)
    product.run(deterministic="batch_invariant")
    for m in (1, 2, 7, 16, 17, 63, 64, 65, 128, 200):
        part = cleave.mixed_gemm(
            product.x[:m], product.packed, scale_a=product.scale[:m], out_dtype="float32",
            deterministic="batch_invariant",
        )  # fmt: skip
        assert torch.equal(part, product.out[:m]), m


@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("activation_dtype", ["float8_e4m3fn", "int8"])
def test_experts_are_the_cpus(activation_dtype: str, format: str) -> None:
    from cleave.torch import W4A8Experts

    shapes, group = ((4, 512, 256), (4, 256, 256)), 16 if format == "nvfp4" else 32
    experts = W4A8Experts.from_packed(
        *(cleave.pack_weights(torch.randn(shape).bfloat16() / 16, group, format) for shape in shapes),
        *(torch.randn(shape[:2]).bfloat16() for shape in shapes),
        activation_dtype,
    )
    x, weights = torch.randn(33, 256).bfloat16(), torch.rand(33, 2)
    ids = torch.randint(0, 5, (33, 2))  # 4 is no expert's number
    expected = experts(x, ids, weights).float()
    experts = experts.cuda()
    cleave.prepare(experts, (1, 33))
    x, ids, weights = x.cuda(), ids.cuda(), weights.cuda()
    found = experts(x, ids, weights)
    assert (found.cpu().float() - expected).norm() < 0.01 * expected.norm()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = experts(x, ids, weights)
    for _ in range(3):
        x.normal_()
        ids.random_(0, 5)
        graph.replay()
        assert torch.equal(y, experts(x, ids, weights))


@pytest.mark.parametrize("activation_dtype", ["float8_e4m3fn", "int8"])
def test_layers_in_graphs(activation_dtype: str) -> None:
    from cleave.torch import W4A8Linear

    linear = torch.nn.Linear(1024, 512, device="cuda", dtype=torch.bfloat16)
    layer = W4A8Linear.from_linear(linear, 64, activation_dtype=activation_dtype)
    cleave.prepare(layer, (1, 16))
    x = torch.randn(16, 1024, device="cuda", dtype=torch.bfloat16)
    layer.prepare(16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        weight = cleave.dequantize_weights(layer.weights()).double()
        expected = x.double() @ weight.t() + layer.bias.double()
        assert (y.double() - expected).norm() < (
            0.05 if activation_dtype == "float8_e4m3fn" else 0.02
        ) * expected.norm()
