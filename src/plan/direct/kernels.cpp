#include "plan/direct/kernels.h"

#include <algorithm>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// What a function takes and makes: that groups' channels follow each other, `width` of each.
bool adjoins(const EpilogueLayout& layout, int64_t width) {
  switch (layout.shape) {
    case InputShape::row:
      return layout.stride_batch == width * layout.stride;
    case InputShape::matrix:
      return layout.order == Order::row && layout.stride_batch == width;
    default:
      return layout.stride_batch == 0;
  }
}
bool adjoins(const EpilogueProblem& epilogue, int64_t width) {
  if (epilogue.function == nullptr) return true;
  const auto all = [&](const EpilogueLayout* layouts, size_t count) {
    return std::all_of(layouts, layouts + count, [&](const EpilogueLayout& x) { return adjoins(x, width); });
  };
  return all(epilogue.inputs, epilogue.function->inputs().size()) &&
         all(epilogue.outputs, epilogue.function->outputs().size() - 1);
}

}  // namespace

bool are_countable(const ConvLayout& conv, uint32_t most_taps, int32_t most_dilation) {
  constexpr int64_t kMostPadded = 1ll << 28;
  const auto is_countable = [&](const ConvAxis& axis) {
    return axis.stride <= kMostDirectStride && axis.filter <= int32_t(most_taps) &&
           (axis.filter == 1 || axis.dilation <= most_dilation) &&
           int64_t(axis.size) + axis.pad_begin + axis.pad_end <= kMostPadded;
  };
  return is_countable(conv.axes[1]) && is_countable(conv.axes[2]);
}

uint32_t ctas_of_sm(const GemmConfig& c) {
  constexpr uint32_t kSharedOfSm = 227 * 1024, kSharedOfCta = 1024;  // all CTAs', and what each needs beside its own
  return std::min(resident_ctas(c), kSharedOfSm / (smem_plan(c).bytes + kSharedOfCta));
}

void deal_tiles(Choice& choice, int64_t tiles, uint32_t blocks, uint32_t resident) {
  choice.blocks = uint32_t(std::min<int64_t>(tiles, std::max(resident / blocks, 1u) * blocks));
  choice.tiles = double(tiles);
  choice.most_tiles = uint32_t(tiles);
}

bool groups_adjoin(const GemmProblem& p) {
  if (p.batch == 1) return true;
  const ConvLayout& conv = p.conv;
  const int64_t gathered = gathered_group(conv), made = made_group(conv);
  const int64_t filter = conv.kind == Conv::fprop ? p.b.stride_col : p.b.stride_row;
  if (!groups_adjoin(p.a, gathered) || !groups_adjoin(p.d, made) || !groups_adjoin(p.b, conv.filters * filter))
    return false;
  if (p.has_c && !groups_adjoin(p.c, made)) return false;
  if (p.bias != Bias::none && p.bias_stride_batch != made) return false;
  return adjoins(p.epilogue, made);
}

bool wants_direct(const GemmProblem& p) {
  const bool wanted = p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
  const bool split =
      p.split_k_slices > 1 || (p.split_k_mode != SplitKMode::automatic && p.split_k_mode != SplitKMode::none);
  return wanted && !split;
}

bool serves_narrow_groups(const GemmProblem& p) {
  if (p.conv.kind != Conv::fprop && p.conv.kind != Conv::dgrad) return false;
  return has_narrow_groups(p) && p.m > 0 && groups_adjoin(p) && !reduces(p) && wants_direct(p);
}

bool serves_narrow_gradients(const GemmProblem& p) {
  if (p.conv.kind != Conv::wgrad || !has_narrow_groups(p) || p.k == 0) return false;
  const int64_t group = p.conv.channels;
  if (!groups_adjoin(p.a, group) || !groups_adjoin(p.b, group) || !groups_adjoin(p.d, group * p.d.stride_row))
    return false;
  if (p.has_c && !groups_adjoin(p.c, group * p.c.stride_row)) return false;
  if (p.epilogue.function != nullptr) return false;
  const bool splits = p.split_k_mode == SplitKMode::automatic || p.split_k_mode == SplitKMode::parallel;
  if (!splits && p.split_k_mode != SplitKMode::none) return false;
  return p.kernel == KernelFamily::automatic || p.kernel == KernelFamily::direct;
}

uint32_t narrow_vector(const GemmProblem& p, uint32_t most) {
  const uint32_t channels = common_alignment(uint64_t(p.batch) * p.conv.channels);
  return std::min({most, 16 / size_of(p.a.dtype), channels, aligned_channels(p.a, p.a.stride_row),
                   aligned_channels(p.d, p.d.stride_row)});
}

double narrow_bytes(const Choice& choice) {
  const GemmProblem& p = choice.problem;
  const bool back = p.conv.kind == Conv::dgrad;
  const double of_outputs = double(output_pixels(p.conv)), of_image = double(image_pixels(p.conv));
  const double made = (back ? of_image : of_outputs) * size_of(p.d.dtype) * (p.has_c ? 2 : 1);
  return (made + (back ? of_outputs : of_image) * size_of(p.a.dtype)) * double(p.n);
}

}  // namespace cleave
