"""Products with packed int4 weights on the GPU: exactly, in every mode and tile, and against float64.

For exact results x holds small integers and scales are powers of two: elements of the weight and sums are exact then,
in whatever order they are made. What surrounds scales, zero points and D shows stray accesses.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402
from cleave import _core  # noqa: E402

CANARY = 96.0
MODES = ("none", "serial", "parallel", "cluster", "stream_k")
TILES = (
    "64x16", "64x64", "64x256", "128x16", "128x32", "128x48", "128x128", "128x240", "192x64", "256x16", "256x32",
    "256x48", "256x64", "256x96", "256x128",
)  # fmt: skip
STREAMED = ("16x8", "16x16", "32x8", "32x16", "64x8")
# The planner's choice in every mode, and the streamed kernel in all that it has.
KERNELS_AND_MODES = (*(("auto", mode) for mode in MODES), ("streamed", "none"), ("streamed", "parallel"))


@pytest.fixture(autouse=True)
def hopper() -> None:
    skip_unless_served("sm90")


def framed(shape: tuple[int, int], dtype: torch.dtype, fill: float, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix cut from a buffer full of `fill`, and the buffer."""
    rows, columns = shape
    buffer = torch.full((rows + 2, columns + padding), fill, device="cuda").to(dtype)
    return buffer[1 : rows + 1, :columns], buffer


@dataclass
class Product:
    m: int
    n: int
    k: int
    group: int = 128
    dtype: torch.dtype = torch.bfloat16
    has_zeros: bool = False
    exact: bool = True
    padding: int = 8  # of lines of scales, zero points and D

    def __post_init__(self) -> None:
        groups = self.k // self.group
        self.codes = torch.randint(0, 16, (self.n, self.k), dtype=torch.uint8, device="cuda")
        self.scales, _ = framed((groups, self.n), self.dtype, float("nan"), self.padding)
        if self.exact:
            self.x = torch.randint(-3, 4, (self.m, self.k), device="cuda").to(self.dtype)
            self.scales.copy_(2.0 ** torch.randint(-3, 1, (groups, self.n), device="cuda"))
        else:
            self.x = torch.randn(self.m, self.k, device="cuda").to(self.dtype)
            self.scales.copy_(torch.randn(groups, self.n, device="cuda") * 0.05)
        self.zeros = None
        if self.has_zeros:
            self.zeros, _ = framed((groups, self.n), torch.uint8, 255, self.padding)
            self.zeros.copy_(torch.randint(0, 16, (groups, self.n), device="cuda"))
        packed = cleave.pack_weights(self.codes, self.group, scales=self.scales.contiguous(), zeros=self.zeros)
        self.packed = packed.packed
        self.out, self.buffer = framed((self.m, self.n), self.dtype, CANARY, self.padding)
        self.out.fill_(float("nan"))

    @property
    def weight(self) -> torch.Tensor:
        """What the packed one stands for, in float64."""
        zero = 8.0 if self.zeros is None else self.zeros.t().repeat_interleave(self.group, 1).double()
        return (self.codes.double() - zero) * self.scales.double().t().repeat_interleave(self.group, 1)

    def run(self, **options) -> None:
        _core.mixed_gemm(
            self.x, self.packed, self.scales, zeros=self.zeros, out_features=self.n, group_size=self.group,
            out=self.out, **options,
        )  # fmt: skip

    def run_as(self, kernel: str) -> None:
        zeros = " zeros" if self.has_zeros else ""
        name = _core.dtype_name(self.dtype, "dtype")
        text = f"{self.m}x{self.n}x{self.k}x1 tn {name} {name} weights int4 {self.group}{zeros}"
        plan = _core.plan_as(_core.plan_text(text, "cuda"), kernel)
        assert self.padding == 0  # as the text has it
        arrays = {"a": self.x, "b": self.packed, "d": self.out, "weight_scale": self.scales, "weight_zero": self.zeros}
        addresses = {name: array.data_ptr() for name, array in arrays.items() if array is not None}
        _core.run_at(plan, addresses, torch.cuda.current_stream().cuda_stream)

    def check(self, expected: torch.Tensor | None = None) -> None:
        sums = self.x.double() @ self.weight.t() if expected is None else expected
        if self.exact:
            assert torch.equal(self.out, sums.to(self.dtype)), str(self)
        else:
            unit = torch.finfo(self.dtype).eps
            bound = (self.x.double().abs() @ self.weight.abs().t()) * unit + sums.abs() * unit + 1e-6
            assert bool(((self.out.double() - sums).abs() <= bound).all()), str(self)
        outside = self.buffer.clone()
        outside[1 : self.m + 1, : self.n] = CANARY
        assert bool((outside == CANARY).all()), f"{self}: wrote outside of D"


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("group", [32, 64, 128, 256, "row"])
def test_groups(group: int | str, dtype: torch.dtype, has_zeros: bool) -> None:
    for m, n, k in ((1, 64, 256), (3, 200, 512), (17, 129, 1280), (64, 513, 768), (130, 384, 2304)):
        for exact in (True, False):
            product = Product(m, n, k, k if group == "row" else group, dtype, has_zeros, exact)
            product.run()
            product.check()


@pytest.mark.parametrize("padding", [0, 1, 3, 8])
@pytest.mark.parametrize("n", [1, 63, 65, 127, 130])
def test_lines_that_begin_anywhere(n: int, padding: int) -> None:
    """Scales, and zero points, that no access of four bytes is aligned to."""
    for m in (1, 2, 19):
        for group in (32, 128):
            product = Product(m, n, 640, group, has_zeros=True, padding=padding)
            product.run()
            product.check()


@pytest.mark.parametrize("k", [8, 72, 136, 200, 1000, 1992])
def test_columns_that_fill_no_block(k: int) -> None:
    for m, n in ((1, 64), (33, 300)):
        for has_zeros in (False, True):
            product = Product(m, n, k, k, has_zeros=has_zeros)
            product.run()
            product.check()


@pytest.mark.parametrize("mode", MODES)
def test_splits(mode: str) -> None:
    for m in (1, 16, 40, 200):
        for n, k in ((512, 4096), (1000, 3072)):
            for has_zeros in (False, True):
                product = Product(m, n, k, has_zeros=has_zeros)
                product.run(split_k_mode=mode, split_k_slices=None if mode in ("none", "stream_k") else 4)
                product.check()


@pytest.mark.parametrize("split", ["", " parallel 3", " cluster 2"])
@pytest.mark.parametrize("shared", ["", " multicast 2x1"])
@pytest.mark.parametrize("tile", TILES)
def test_tiles(tile: str, shared: str, split: str) -> None:
    if shared and (" cluster" in split or tile == "64x16"):
        pytest.skip("not served")
    for m, n, k in ((24, 520, 1152), (260, 1096, 640)):
        product = Product(m, n, k, padding=0)
        try:
            product.run_as(f"sm90 {tile} transposed{shared}{split}")
        except ValueError as error:
            assert "cannot serve" in str(error)
            continue
        product.check()


@pytest.mark.parametrize("split", ["", " parallel 3"])
@pytest.mark.parametrize("tile", STREAMED)
def test_streamed(tile: str, split: str) -> None:
    """Rows and columns that fill no tile, K that fills no k block, and more of K than stays in shared memory."""
    small = (1, 64, 128), (3, 520, 1152), (16, 1000, 1992), (40, 200, 640)
    for m, n, k in (*small, (8, 4096, 4096), (16, 72, 8192), (7, 40, 16384)):
        for group, has_zeros in ((128, False), (32, True), (64, False)):
            if k % group:
                group = k
            for exact in (True, False):
                product = Product(m, n, k, group, has_zeros=has_zeros, padding=0, exact=exact)
                product.run_as(f"streamed {tile} transposed{split}")
                product.check()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_streamed_epilogue(dtype: torch.dtype) -> None:
    for m, columns in ((5, 264), (16, 1000)):
        product = Product(m, columns, 1024, dtype=dtype, exact=False)
        bias, c = torch.randn(columns, device="cuda"), torch.randn(m, columns, device="cuda")
        product.run(bias=bias, c=c, alpha=0.5, beta=2.0, activation="relu", kernel="streamed")
        product.check((0.5 * (product.x.double() @ product.weight.t()) + 2.0 * c.double() + bias.double()).relu())


def test_streamed_lines_that_begin_anywhere() -> None:
    """x of rows that no copy of 16, 8 or 4 bytes is aligned to."""
    for lead in (8, 4, 2, 1):
        product = Product(3, 200, 640)
        wide = torch.zeros(3, 640 + lead, dtype=product.dtype, device="cuda")
        wide[:, lead:] = product.x
        product.x = wide[:, lead:]
        product.run(kernel="streamed")
        product.check()


def test_epilogue() -> None:
    for m in (5, 70):
        product = Product(m, 264, 1024)
        bias, c = torch.randn(264, device="cuda"), torch.randn(m, 264, device="cuda")
        product.exact = False
        product.run(bias=bias, c=c, alpha=0.5, beta=2.0, activation="relu")
        sums = 0.5 * (product.x.double() @ product.weight.t()) + 2.0 * c.double() + bias.double()
        product.check(sums.relu())


def test_graphs_and_static_weights() -> None:
    product = Product(16, 1024, 4096)
    product.run(static_b=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            product.run(static_b=True)
    for _ in range(5):
        product.x.copy_(torch.randint(-3, 4, product.x.shape, device="cuda"))
        product.out.fill_(float("nan"))
        graph.replay()
        product.check()


def test_runs_repeat_bit_by_bit() -> None:
    for mode in MODES:
        product = Product(24, 1000, 4096, exact=False)
        product.run(split_k_mode=mode)
        first = product.out.clone()
        for _ in range(20):
            product.out.fill_(float("nan"))
            product.run(split_k_mode=mode)
            assert torch.equal(product.out, first)


def test_operator() -> None:
    import cleave.torch  # noqa: F401

    product = Product(24, 1000, 4096)
    d = torch.ops.cleave.mixed_gemm(
        product.x, product.packed, product.scales, None, product.n, product.group, None, torch.float32
    )
    assert torch.equal(d.double(), product.x.double() @ product.weight.t())


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
def test_experts(kernel: str) -> None:
    codes = torch.randint(0, 16, (3, 200, 512), dtype=torch.uint8, device="cuda")
    scales = torch.rand(3, 4, 200, device="cuda").bfloat16()
    packed = cleave.pack_weights(codes, 128, scales=scales)
    x = torch.randn(3, 20, 512, device="cuda").bfloat16()
    expected = x.double() @ cleave.dequantize_weights(packed).double().mT
    d = cleave.mixed_gemm(x, packed, kernel=kernel)
    torch.testing.assert_close(d.double(), expected, rtol=2e-2, atol=0.5)


@pytest.mark.parametrize(("kernel", "mode"), KERNELS_AND_MODES)
@pytest.mark.parametrize("sizes", [[1, 0, 5, 130, 17], [64, 64, 64, 64], [0, 0, 3, 0]])
def test_groups_of_rows(kernel: str, mode: str, sizes: list[int]) -> None:
    experts, n, k = len(sizes), 200, 768
    codes = torch.randint(0, 16, (experts, n, k), dtype=torch.uint8, device="cuda")
    scales = 2.0 ** torch.randint(-3, 1, (experts, k // 64, n), device="cuda").float()
    zeros = torch.randint(0, 16, scales.shape, dtype=torch.uint8, device="cuda")
    packed = cleave.pack_weights(codes, 64, scales=scales.bfloat16(), zeros=zeros)
    offs = torch.tensor(sizes, device="cuda").cumsum(0, dtype=torch.int32)
    x = torch.randint(-3, 4, (sum(sizes) + 9, k), device="cuda").bfloat16()
    d = cleave.mixed_gemm(x, packed, offs=offs, out_dtype="float32", split_k_mode=mode, kernel=kernel)
    weight = cleave.dequantize_weights(packed).double()
    for expert, (size, end) in enumerate(zip(sizes, offs.tolist(), strict=True)):
        rows = slice(end - size, end)
        assert torch.equal(d[rows].double(), x[rows].double() @ weight[expert].t())
    assert not d[sum(sizes) :].any()


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mxfp4(dtype: torch.dtype, kernel: str) -> None:
    for m, n, k in ((1, 64, 256), (19, 131, 2880), (130, 2880, 512)):
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8, device="cuda")
        scales = torch.randint(124, 128, (k // 32, n), dtype=torch.uint8, device="cuda")
        packed = cleave.pack_weights(codes, 32, "mxfp4", scales=scales)
        x = torch.randint(-3, 4, (m, k), device="cuda").to(dtype)
        d = cleave.mixed_gemm(x, packed, out_dtype="float32", kernel=kernel)
        assert torch.equal(d.double(), x.double() @ cleave.dequantize_weights(packed).double().t())


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
@pytest.mark.parametrize("sizes", [[1, 0, 5, 130, 17], [64, 64, 64, 64]])
def test_experts_in_mxfp4(sizes: list[int], kernel: str) -> None:
    experts, n, k = len(sizes), 200, 768
    codes = torch.randint(0, 16, (experts, n, k), dtype=torch.uint8, device="cuda")
    scales = torch.randint(124, 128, (experts, k // 32, n), dtype=torch.uint8, device="cuda")
    packed = cleave.pack_weights(codes, 32, "mxfp4", scales=scales)
    offs = torch.tensor(sizes, device="cuda").cumsum(0, dtype=torch.int32)
    x = torch.randint(-3, 4, (sum(sizes) + 9, k), device="cuda").bfloat16()
    d = cleave.mixed_gemm(x, packed, offs=offs, out_dtype="float32", kernel=kernel)
    weight = cleave.dequantize_weights(packed).double()
    for expert, (size, end) in enumerate(zip(sizes, offs.tolist(), strict=True)):
        rows = slice(end - size, end)
        assert torch.equal(d[rows].double(), x[rows].double() @ weight[expert].t()), expert
    assert not d[sum(sizes) :].any()


@pytest.mark.parametrize(("kernel", "mode"), KERNELS_AND_MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_nvfp4(dtype: torch.dtype, kernel: str, mode: str) -> None:
    """Elements are exact whatever their scales, subnormal ones too; sums of integers times 2^-9 are."""
    for m, n, k in ((1, 64, 256), (19, 131, 2880), (130, 1440, 528)):
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8, device="cuda")
        scales = torch.randint(0, 24, (k // 16, n), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
        by_row = 2.0 ** torch.randint(-3, 4, (n,), device="cuda").float()
        for global_scale in (0.25, by_row):
            packed = cleave.pack_weights(codes, 16, "nvfp4", scales=scales, global_scale=global_scale)
            x = torch.randint(-3, 4, (m, k), device="cuda").to(dtype)
            d = cleave.mixed_gemm(x, packed, out_dtype="float32", split_k_mode=mode, kernel=kernel)
            assert torch.equal(d.double(), x.double() @ cleave.dequantize_weights(packed).double().t()), (m, n, k)


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
def test_nvfp4_of_any_scales(kernel: str) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        weight, x = torch.randn(520, 1040, device="cuda"), torch.randn(17, 1040, device="cuda").to(dtype)
        packed = cleave.pack_weights(weight, format="nvfp4")
        packed.scales.view(torch.uint8)[0] = torch.arange(520, device="cuda").to(torch.uint8) % 127
        values = cleave.dequantize_weights(packed).double()
        d = cleave.mixed_gemm(x, packed, out_dtype="float32", kernel=kernel).double()
        bound = (x.double().abs() @ values.abs().t()) * 1e-4 + 1e-6
        assert bool(((d - x.double() @ values.t()).abs() <= bound).all())


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["mxfp4", "nvfp4"])
def test_scales_of_every_byte(form: str, dtype: torch.dtype, kernel: str) -> None:
    """Also those that are no numbers, whose rows of the weight are none: the others stay exact."""
    group, k = (32, 320) if form == "mxfp4" else (16, 272)
    codes = torch.randint(0, 16, (256, k), dtype=torch.uint8, device="cuda")
    every = torch.arange(256, dtype=torch.uint8, device="cuda")
    if form == "mxfp4":
        every = torch.where(every == 255, every, every % 24 + 110)  # float16 has room for these
        scales, nan, global_scale = every.repeat(k // group, 1), every == 255, None
    else:
        scales, nan, global_scale = every.repeat(k // group, 1).view(torch.float8_e4m3fn), every % 128 == 127, 1.0
    numbers = torch.zeros_like(scales.view(torch.uint8)).view(scales.dtype)
    packed = cleave.pack_weights(codes, group, form, scales=numbers, global_scale=global_scale)
    packed.scales.view(torch.uint8).copy_(scales.view(torch.uint8))
    for m in (3, 40):
        x = torch.randint(1, 4, (m, k), device="cuda").to(dtype)
        d = cleave.mixed_gemm(x, packed, out_dtype="float32", kernel=kernel)
        assert bool((d.isnan() == nan).all())
        expected = x.double() @ cleave.dequantize_weights(packed).double().t()
        assert torch.equal(d.double()[:, ~nan], expected[:, ~nan])


@pytest.mark.parametrize("kernel", ["auto", "streamed"])
@pytest.mark.parametrize("sizes", [[1, 0, 5, 130, 17], [64, 64, 64, 64]])
def test_experts_in_nvfp4(sizes: list[int], kernel: str) -> None:
    experts, n, k = len(sizes), 200, 768
    codes = torch.randint(0, 16, (experts, n, k), dtype=torch.uint8, device="cuda")
    scales = torch.randint(0, 24, (experts, k // 16, n), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    factors = 2.0 ** torch.arange(experts, device="cuda").float()
    offs = torch.tensor(sizes, device="cuda").cumsum(0, dtype=torch.int32)
    x = torch.randint(-3, 4, (sum(sizes) + 9, k), device="cuda").bfloat16()
    for by_row in (False, True):
        scale = factors[:, None] * (1.0 + (torch.arange(n, device="cuda") % 2)) if by_row else factors
        packed = cleave.pack_weights(codes, 16, "nvfp4", scales=scales, global_scale=scale)
        d = cleave.mixed_gemm(x, packed, offs=offs, out_dtype="float32", kernel=kernel)
        weight = cleave.dequantize_weights(packed).double()
        for expert, (size, end) in enumerate(zip(sizes, offs.tolist(), strict=True)):
            rows = slice(end - size, end)
            assert torch.equal(d[rows].double(), x[rows].double() @ weight[expert].t()), (expert, by_row)
        assert not d[sum(sizes) :].any()


def test_rows_do_not_depend_on_the_batch() -> None:
    product = Product(300, 1000, 4096, exact=False)
    product.run(deterministic="batch_invariant")
    whole = product.out.clone()
    for m in (1, 2, 7, 16, 17, 63, 64, 65, 128, 200):
        part = _core.mixed_gemm(
            product.x[:m], product.packed, product.scales, out_features=1000, group_size=128,
            deterministic="batch_invariant",
        )  # fmt: skip
        assert torch.equal(part, whole[:m]), m
