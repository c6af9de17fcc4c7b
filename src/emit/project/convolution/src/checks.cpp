#include "checks.h"

#include "launch/limits.h"

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
    const uint32_t whole = config.store.by_tma ? 16 : store;
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

std::string check_address(const Tensor& x) {
  if (reinterpret_cast<uintptr_t>(x.data) % x.alignment == 0) return {};
  return text(x.name, " is at ", x.data, "; it must be at a multiple of ", x.alignment, " bytes");
}

/// Pixels of images; filters are packed.
std::string check_stride(const Tensor& x) {
  if (x.stride < x.channels)
    return text("pixel_stride_", x.name, " is ", x.stride, "; it must be at least the ", x.channels, " channels");
  if (x.stride * x.element % x.alignment != 0)
    return text("pixel_stride_", x.name, " is ", x.stride, "; it must be a multiple of ", x.alignment / x.element);
  return {};
}

}  // namespace

bool is_empty(const cleave::GemmProblem& p) {
  return kKind != Kind::wgrad && p.conv.images == 0;
}

std::string find_obstacle(const cleave::GemmProblem& p, const Kernel& kernel) {
  const cleave::GemmConfig& config = kernel.config;
  if (is_empty(p)) return {};
  if (config.family == cleave::KernelFamily::sm90 && p.conv.images == 0)
    return "images is 0; this kernel needs at least 1. Fill w without it";
  const Tensors tensors(p, {}, config);
  std::string fault = check_stride(tensors.a);
  if (kKind == Kind::wgrad) return fault.empty() ? check_stride(tensors.b) : fault;
  return fault.empty() ? check_stride(tensors.d) : fault;
}

std::string find_view(const cleave::GemmProblem& problem, const Kernel& kernel, View& view) {
  const cleave::GemmConfig& config = kernel.config;
  view.geometry = conv_geometry(problem.conv, problem.batch);
  view.classes = deal_classes(config, view.geometry);
  const int64_t gathered = gathers_a(config) ? problem.a.stride_row : problem.b.stride_row;
  if (!serves(config, view.geometry, view.classes) || !reaches_image(config, view.geometry, gathered))
    return "the kernel was made for images of other sizes; emit the operation for these";
  view.problem = conv_view(problem, config, view.geometry, view.classes);
  const cleave::GemmProblem& p = view.problem;
  view.tiles =
      gemm_tiles(config, {uint32_t(p.m), uint32_t(p.n), uint32_t(p.k), uint32_t(p.batch)}, view.classes.table());
  if (config.cluster.k > 1 && view.tiles.k_blocks < config.cluster.k)
    return text("sums are only ", view.tiles.k_blocks, " steps long, and this kernel splits them among ",
                config.cluster.k, " blocks; emit the operation for these sizes");
  if (!is_countable(config, view.tiles, kernel.slices))
    return "that is too much for one launch; pass fewer images at a time";
  return {};
}

std::string find_misplaced(const Given& given, const Kernel& kernel) {
  const auto& [p, x] = given;
  const Tensors tensors(p, x, kernel.config);
  for (const Tensor& tensor : {tensors.a, tensors.b, tensors.d}) {
    if (std::string fault = check_address(tensor); !fault.empty()) return fault;
  }
  if (x.beta != 0.0f) {
    Tensor c = tensors.d;
    c.name = "c";
    c.data = x.c;
    c.element = c.alignment = cleave::size_of(kernel.config.epilogue.c);
    c.stride = p.c.stride_row;
    std::string fault = check_address(c);
    if (fault.empty() && kKind != Kind::wgrad) fault = check_stride(c);
    if (!fault.empty()) return fault;
  }
  return find_factor_fault(p, x);
}

std::string find_missing(const Given& given) {
  const auto& [p, x] = given;
  const Tensors tensors(p, x, kKernels[0].config);
  const auto missing = [](const char* name) { return text(name, " is a null pointer; pass the data"); };
  for (const Tensor& tensor : {tensors.a, tensors.b, tensors.d})
    if (tensor.data == nullptr) return missing(tensor.name);
  if (x.beta != 0.0f && x.c == nullptr) return missing("c");
  if (p.bias != cleave::Bias::none && x.bias == nullptr) return missing("bias");
  return {};
}

}  // namespace emitted::operation
