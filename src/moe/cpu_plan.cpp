// The operations on the host.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cleave/core/element.h"
#include "cleave/core/multiply_add.h"
#include "cleave/core/quantizer.h"
#include "cleave/moe/moe_params.h"
#include "cpu/host_plan.h"
#include "moe/problem.h"

namespace cleave {
namespace {

/// One run.
class Job {
 public:
  Job(const MoeProblem& problem, const MoeArguments& arguments, uint32_t threads)
      : p_(problem),
        arguments_(arguments),
        threads_(threads_for(slots_of(p_) * p_.columns, threads)),
        slots_(uint32_t(slots_of(p_))),
        top_k_(uint32_t(p_.top_k)) {}

  void run() {
    if (reads_ids(p_.operation)) {
      read_ids();
      if (has_indices(p_.operation)) sort();
    } else {
      invert();
    }
    switch (p_.operation) {
      case MoeOperation::offsets:
      case MoeOperation::sort:
        break;
      case MoeOperation::permute:
      case MoeOperation::gather:
        if (p_.scaled) {
          for_each(threads_, uint32_t(p_.tokens), [&](uint32_t token) { quantize(token); });
        } else {
          for_each(threads_, slots_, [&](uint32_t slot) { copy(slot); });
        }
        break;
      case MoeOperation::combine:
        for_each(threads_, uint32_t(p_.tokens), [&](uint32_t token) { combine(token); });
        break;
      case MoeOperation::combine_backward:
        for_each(threads_, slots_, [&](uint32_t slot) { combine_backward(slot); });
        break;
    }
  }

 private:
  /// Every slot's bin, and where each expert's rows end.
  void read_ids() {
    const MoeParams params{.experts = uint32_t(p_.experts), .ids = arguments_.ids};
    std::vector<int32_t> counts(size_t(p_.experts) + 1);
    bins_.resize(slots_);
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      bins_[slot] = p_.wide_ids ? bin_of<true>(params, slot) : bin_of<false>(params, slot);
      ++counts[bins_[slot]];
    }
    for (int32_t expert = 0, end = 0; expert < p_.experts; ++expert)
      arguments_.offsets[expert] = end += counts[size_t(expert)];
  }

  void sort() {
    std::vector<uint32_t> rows{0};  // the next one of each bin
    rows.insert(rows.end(), arguments_.offsets, arguments_.offsets + p_.experts);
    positions_.resize(slots_);
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      const bool dropped = bins_[slot] == uint32_t(p_.experts);
      const uint32_t row = rows[bins_[slot]]++;
      positions_[slot] = signed_index(row, dropped);
      arguments_.indices[row] = signed_index(slot, dropped);
    }
  }

  void invert() {
    positions_.assign(slots_, -1);
    for (uint32_t row = 0; row < slots_; ++row) {
      const Signed slot(arguments_.indices[row]);
      if (slot.index < slots_) positions_[slot.index] = signed_index(row, slot.dropped);
    }
  }

  void copy(uint32_t slot) const {
    const Signed row(positions_[slot]);
    const size_t size = size_of(p_.row.dtype), bytes = size_t(p_.columns) * size;
    if (bytes == 0) return;
    const auto to = static_cast<char*>(arguments_.rows) + row.index * p_.row.stride_row * size;
    if (row.dropped) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, static_cast<const char*>(arguments_.tokens) + slot / top_k_ * p_.token.stride_row * size, bytes);
    }
  }

  /// To all rows of the token.
  void quantize(uint32_t token) const {
    std::vector<uint8_t> bytes(size_t(p_.columns));
    std::vector<float> scales(size_t(scales_of(p_)));
    for (size_t group = 0; group < scales.size(); ++group) {
      const int64_t begin = int64_t(group) * kScaleBlock, end = std::min(begin + int64_t(kScaleBlock), p_.columns);
      Reach reach;
      for (int64_t col = begin; col < end; ++col) reach.add(true, element(p_.token, arguments_.tokens, token, col));
      const Quantizer quantizer = quantizer_for(p_.row.dtype, true, false, reach);
      for (int64_t col = begin; col < end; ++col) {
        store_element(p_.row.dtype, bytes.data(), col,
                      quantized(quantizer, true, element(p_.token, arguments_.tokens, token, col)));
      }
      scales[group] = quantizer.scale;
    }
    for (uint32_t slot = token * top_k_; slot < (token + 1) * top_k_; ++slot) {
      const Signed row(positions_[slot]);
      uint8_t* const to = static_cast<uint8_t*>(arguments_.rows) + row.index * p_.row.stride_row;
      float* const to_scales = arguments_.row_scales + row.index * scales.size();
      if (row.dropped) {
        std::fill_n(to, bytes.size(), uint8_t(0));
        std::ranges::fill_n(to_scales, ptrdiff_t(scales.size()), 0.0f);
      } else {
        std::ranges::copy(bytes, to);
        std::ranges::copy(scales, to_scales);
      }
    }
  }

  void combine(uint32_t token) const {
    std::vector<float> sums(size_t(p_.columns));
    for (uint32_t slot = token * top_k_; slot < (token + 1) * top_k_; ++slot) {
      const Signed row(positions_[slot]);
      if (row.dropped) continue;
      const float weight = p_.has_weights ? weight_of(slot) : 1.0f;
      for (int64_t col = 0; col < p_.columns; ++col) {
        float& sum = sums[size_t(col)];
        sum = multiply_add(weight, element(p_.row, arguments_.rows, row.index, col), sum);
      }
    }
    for (int64_t col = 0; col < p_.columns; ++col) {
      store_element(p_.token.dtype, arguments_.tokens, token * p_.token.stride_row + col, sums[size_t(col)]);
    }
  }

  void combine_backward(uint32_t slot) const {
    const Signed row(positions_[slot]);
    const float weight = weight_of(slot);
    float sum = 0.0f;
    for (int64_t col = 0; col < p_.columns; ++col) {
      float product = 0.0f;
      if (!row.dropped) {
        const float x = element(p_.token, arguments_.tokens, slot / top_k_, col);
        sum = multiply_add(x, element(p_.row, arguments_.rows, row.index, col), sum);
        product = weight * x;
      }
      store_element(p_.row_grad.dtype, arguments_.rows_grad, row.index * p_.row_grad.stride_row + col, product);
    }
    store_element(p_.weights_dtype, arguments_.weights_grad, slot, sum);
  }

  float weight_of(uint32_t slot) const { return load_element(p_.weights_dtype, arguments_.weights, slot); }

  static float element(const MatrixLayout& layout, const void* data, int64_t row, int64_t col) {
    return load_element(layout.dtype, data, row * layout.stride_row + col);
  }

  const MoeProblem& p_;
  const MoeArguments& arguments_;
  const uint32_t threads_, slots_, top_k_;
  std::vector<uint32_t> bins_;      // by slot
  std::vector<int32_t> positions_;  // as MoeParams has them
};

}  // namespace

std::shared_ptr<const MoePlan> make_cpu_plan(const MoeProblem& problem, uint32_t threads) {
  return std::make_shared<HostPlan<MoePlan, MoeProblem, MoeArguments, Job>>(problem, threads);
}

}  // namespace cleave
