#include "operands/channels_last.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "cleave/core/saturate.h"

namespace cleave {
namespace {

bool channels_are_neighbours(const Operand& x) {
  return x.shape[1] == 1 || x.stride[1] == 1;
}

}  // namespace

std::optional<int64_t> pixel_stride(const Operand& x) {
  if (x.empty()) return x.shape[1];  // NumPy may say strides of 0
  if (!channels_are_neighbours(x)) return std::nullopt;
  std::optional<int64_t> pitch;
  int64_t inner = 1;  // pixels of the axes inside
  const auto follows = [&](int i) {
    if (x.shape[i] == 1) return true;
    if (!pitch) pitch = x.stride[i];
    const bool even = x.stride[i] == saturating_product(*pitch, inner);
    inner = saturating_product(inner, x.shape[i]);
    return even;
  };
  for (int i = x.ndim - 1; i > 1; --i) {
    if (!follows(i)) return std::nullopt;
  }
  if (!follows(0)) return std::nullopt;
  return pitch.value_or(x.shape[1]);
}

std::optional<int64_t> filter_stride(const Operand& w) {
  if (!w.empty() && !channels_are_neighbours(w)) return std::nullopt;
  int64_t inner = w.shape[1];
  for (int i = w.ndim - 1; i > 1; --i) {
    if (!w.empty() && w.shape[i] > 1 && w.stride[i] != inner) return std::nullopt;
    inner = saturating_product(inner, w.shape[i]);
  }
  return w.shape[0] > 1 && !w.empty() ? w.stride[0] : inner;
}

std::string channels_last_remedy(const char* name, int axes, bool written) {
  if (written) {
    const char* const format = axes == 1 ? "" : axes == 2 ? " (torch.channels_last)" : " (torch.channels_last_3d)";
    return fmt::format("one with channels last in memory{}, and copy the result from it", format);
  }
  if (axes == 1) return fmt::format("{}.transpose(1, 2).contiguous().transpose(1, 2)", name);
  return fmt::format("{}.contiguous(memory_format=torch.channels_last{}), without torch {}", name,
                     axes == 2 ? "" : "_3d",
                     axes == 2 ? "array_nhwc.transpose(0, 3, 1, 2)" : "array_ndhwc.transpose(0, 4, 1, 2, 3)");
}

bool may_overlap_itself(const Operand& x) {
  if (x.empty()) return false;
  std::vector<int> axes(x.ndim);
  std::iota(axes.begin(), axes.end(), 0);
  const auto step = [&](int axis) { return std::abs(x.stride[axis]); };
  std::ranges::sort(axes, {}, step);
  int64_t reach = 0;  // of the axes so far
  for (const int axis : axes) {
    if (x.shape[axis] == 1) continue;
    if (step(axis) <= reach) return true;
    reach += step(axis) * (x.shape[axis] - 1);
  }
  return false;
}

Extents channels_last_strides(const Extents& shape, int ndim) {
  Extents strides{};
  strides[1] = 1;
  int64_t inner = shape[1];
  for (int i = ndim - 1; i > 1; --i) {
    strides[i] = inner;
    inner = saturating_product(inner, shape[i]);
  }
  strides[0] = inner;
  return strides;
}

}  // namespace cleave
