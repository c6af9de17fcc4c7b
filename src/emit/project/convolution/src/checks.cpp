#include "checks.h"

#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "operands.h"

namespace emitted::operation {
namespace {

/// A tensor in memory.
struct Tensor {
  const char* name;
  const void* data;
  uint32_t element, alignment;  // bytes: of an element, and those that the kernel takes at once
  int64_t stride, channels;     // elements from pixel to pixel, or from filter to filter
};

/// The operands and D, in this order; `x` may be without pointers.
struct Tensors {
  Tensor a, b, d;

  Tensors(const cleave::GemmProblem& p, const cleave::GemmArguments& x, const cleave::GemmConfig& config) {
    const uint32_t load = cleave::size_of(config.operands.a), store = cleave::size_of(config.epilogue.d);
    const uint32_t whole = config.store.by_tma ? 16 : std::max(store, config.store.run_bytes);
    const auto tensor = [&](const char* name, const void* data, bool is_d, uint32_t loads) {
      return Tensor{name, data, is_d ? store : load, is_d ? whole : loads, 0, 0};
    };
    a = tensor(kKind == Kind::fprop ? "x" : "y", x.a, false, config.operands.load_bytes_a);
    b = tensor(kKind == Kind::wgrad ? "x" : "w", x.b, false, config.operands.load_bytes_b);
    d = tensor(kKind == Kind::fprop ? "y" : kKind == Kind::dgrad ? "x" : "w", x.d, true, 0);
    a.channels = kKind == Kind::fprop ? kChannels : kFilters;
    a.stride = kKind == Kind::wgrad ? p.a.stride_col : p.a.stride_row;
    b.channels = kChannels;
    b.stride = p.b.stride_row;
    d.channels = kKind == Kind::fprop ? kFilters : kChannels;
    d.stride = p.d.stride_row;
  }
};

/// Pixels of images; filters are packed.
void check_stride(const Tensor& x) {
  if (x.stride < x.channels)
    refuse("pixel_stride_", x.name, " is ", x.stride, "; it must be at least the ", x.channels, " channels");
  if (x.stride * x.element % x.alignment != 0)
    refuse("pixel_stride_", x.name, " is ", x.stride, "; it must be a multiple of ", x.alignment / x.element);
}

}  // namespace

bool is_empty(const cleave::GemmProblem& p) {
  return kKind != Kind::wgrad && p.conv.images == 0;
}

void check_layouts(const cleave::GemmProblem& p, const Kernel& kernel) {
  const cleave::GemmConfig& config = kernel.config;
  if (is_empty(p)) return;
  if (cleave::has_tma(config.family) && p.conv.images == 0)
    refuse("images is 0; this kernel needs at least 1. Fill w without it");
  const Tensors tensors(p, {}, config);
  check_stride(tensors.a);
  if (config.store.run_bytes == 0) {
    check_stride(kKind == Kind::wgrad ? tensors.b : tensors.d);
  } else if (tensors.d.stride != tensors.d.channels) {
    refuse("pixel_stride_x is ", tensors.d.stride, "; this kernel stores several pixels at once: pass ",
           tensors.d.channels);
  }
  visit_operands(p, {}, config, [](const FunctionOperand& x) {
    const bool is_matrix = x.layout.shape == cleave::InputShape::matrix;
    if (is_matrix && kKind != Kind::wgrad && x.layout.stride < kResultChannels)
      x.refuse(".pixel_stride is ", x.layout.stride, "; it must be at least the ", kResultChannels, " channels");
    if (x.layout.stride < 0) x.refuse(".stride is ", x.layout.stride, "; it must not be negative");
    x.check_apart();
  });
}

View make_view(const cleave::GemmProblem& problem, const Kernel& kernel) {
  const cleave::GemmConfig& config = kernel.config;
  View view{.classes = deal_classes(config, problem.conv, 0)};
  view.problem = conv_view(problem, config, view.classes);
  if (!serves(config, problem.conv, view.classes) ||
      !reaches_image(config, problem.conv, gathered_pixel_stride(config, view.problem)))
    refuse("the kernel was made for images of other sizes; emit the operation for these");
  check_pairs(view.problem, config);
  view.tiles = gemm_tiles(config, sizes_of(view.problem), view.classes.table());
  if (config.cluster.k > 1 && view.tiles.k_blocks < config.cluster.k)
    refuse("sums are only ", view.tiles.k_blocks, " steps long, and this kernel splits them among ", config.cluster.k,
           " blocks; emit the operation for these sizes");
  if (!is_countable(config, view.tiles, kernel.slices))
    refuse("that is too much for one launch; pass fewer images at a time");
  return view;
}

void check_arguments(const Given& given, const Kernel& kernel) {
  const auto& [p, x] = given;
  const Tensors tensors(p, x, kernel.config);
  for (const Tensor& tensor : {tensors.a, tensors.b, tensors.d})
    check_address(tensor.name, tensor.data, tensor.alignment);
  if (x.beta != 0.0f) {
    Tensor c = tensors.d;
    c.name = "c";
    c.element = cleave::size_of(kernel.config.epilogue.c);
    c.alignment = cleave::load_bytes_c(kernel.config);
    c.stride = p.c.stride_row;
    check_address(c.name, x.c, c.alignment);
    if (kKind != Kind::wgrad) check_stride(c);
  }
  check_operand_addresses(p, x, kernel.config);
  check_factors(given);
}

void check_present(const Given& given) {
  const auto& [p, x] = given;
  const Tensors tensors(p, x, kKernels[0].config);
  check_pointers({{tensors.a.name, x.a},
                  {tensors.b.name, x.b},
                  {tensors.d.name, x.d},
                  {"c", x.c, x.beta != 0.0f},
                  {"bias", x.bias, p.bias != cleave::Bias::none},
                  {"scale_a", x.scale_a, p.scale_a.kind != cleave::Scaling::none},
                  {"scale_b", x.scale_b, p.scale_b.kind != cleave::Scaling::none},
                  {"scale_d", x.scale_d, p.has_scale_d},
                  {"amax", x.amax, p.has_amax}});
  check_operands_present(p, x, kKernels[0].config);
}

}  // namespace emitted::operation
