// Sums over ranks on the host.
#include <vector>

#include "cleave/core/quantizer.h"
#include "cleave/epilogue.h"
#include "cpu/host_plan.h"
#include "epilogue/evaluate.h"
#include "peers/fold_problem.h"

namespace cleave {
namespace {

/// One run.
class Job {
 public:
  Job(const FoldProblem& problem, const FoldArguments& arguments, uint32_t threads)
      : p_(problem), arguments_(arguments), threads_(threads_for(p_.rows * p_.columns * p_.ranks, threads)) {}

  void run() {
    if (arguments_.group != nullptr) arguments_.group->barrier(arguments_.call, nullptr);
    for_each(threads_, p_.rows, [&](int64_t row) { fold(row); });
  }

 private:
  void fold(int64_t row) const {
    const float inverse = p_.has_scale_d ? 1.0f / *arguments_.scale_d : 1.0f;
    const Gates gates = gates_of(p_);
    const int64_t columns = columns_of_d(p_);
    const EpilogueEvaluator* const function = p_.function == nullptr ? nullptr : &p_.function->evaluator();
    std::vector<float> scratch, ups(gates == Gates::none ? 0 : kEvaluatedLanes);
    if (function != nullptr) scratch = function->scratch();
    for (int64_t first = 0; first < columns; first += kEvaluatedLanes) {
      const auto count = uint32_t(min_of<int64_t>(columns - first, kEvaluatedLanes));
      float sums[kEvaluatedLanes] = {};
      for (uint32_t i = 0; i < count; ++i) {
        const int64_t n = first + i;
        sums[i] = whole_sum(row, gates == Gates::interleaved ? 2 * n : n);
        if (gates != Gates::none) ups[i] = whole_sum(row, gates == Gates::interleaved ? 2 * n + 1 : columns + n);
      }
      float* const outputs[] = {sums};
      if (function != nullptr) (*function)(count, sums, ups.data(), nullptr, outputs, scratch);
      if (finds_scales(p_)) quantize(sums, count, row, first);
      for (uint32_t i = 0; i < count; ++i)
        store_element(p_.d.dtype, arguments_.d, row * p_.d.stride_row + first + i, sums[i] * inverse);
    }
  }

  /// A line of columns, from `first` on.
  void quantize(float* values, uint32_t count, int64_t row, int64_t first) const {
    static_assert(kEvaluatedLanes == kScaleBlock);
    Reach reach;
    for (uint32_t i = 0; i < count; ++i) reach.add(true, values[i]);
    const Quantizer quantizer = quantizer_for(p_.d.dtype, true, p_.ue8m0_scale_out, reach);
    for (uint32_t i = 0; i < count; ++i) values[i] = quantized(quantizer, true, values[i]);
    const int64_t at = row * p_.scale_out.stride_row + first / kScaleBlock * p_.scale_out.stride_k;
    arguments_.scale_out[at] = quantizer.scale;
  }

  /// With what is added to it.
  float whole_sum(int64_t row, int64_t n) const {
    float sum = p_.partial.dtype == DType::i32 ? exact_sum(row, n) : sum_of(row, n);
    if (p_.has_c) sum += load_element(p_.c.dtype, arguments_.c, row * p_.c.stride_row + n);
    if (p_.has_bias) sum += load_element(p_.bias, arguments_.bias, n);
    return sum;
  }

  float sum_of(int64_t row, int64_t n) const {
    const auto partial = [&](int64_t rank) {
      return load_element(p_.partial.dtype, arguments_.partials[rank], row * p_.partial.stride_row + n);
    };
    float sum = partial(0);
    for (int64_t rank = 1; rank < p_.ranks; ++rank) sum += partial(rank);
    return sum;
  }

  float exact_sum(int64_t row, int64_t n) const {
    uint32_t sum = 0;
    for (int64_t rank = 0; rank < p_.ranks; ++rank)
      sum += static_cast<const uint32_t*>(arguments_.partials[rank])[row * p_.partial.stride_row + n];
    const auto scale = [](const float* of, int64_t at) { return of == nullptr ? 1.0f : of[at]; };
    return scaled(int32_t(sum), scale(arguments_.scale_a, row * p_.scale_a.stride_row),
                  scale(arguments_.scale_b, n * p_.scale_b.stride_row));
  }

  const FoldProblem& p_;
  const FoldArguments& arguments_;
  const uint32_t threads_;
};

}  // namespace

std::shared_ptr<const FoldPlan> make_cpu_plan(const FoldProblem& problem, uint32_t threads) {
  return std::make_shared<HostPlan<FoldPlan, FoldProblem, FoldArguments, Job>>(problem, threads);
}

}  // namespace cleave
