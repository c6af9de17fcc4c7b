#include "moe/launches.h"

#include <bit>

#include "cleave/core/saturate.h"
#include "jit/translation_unit.h"
#include "moe/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kWarp = 32;

/// Slots that one CTA has faster than several can meet, and the fewest that are worth a CTA where there are more. An
/// H200's CTA takes some 1.7 ns to rank a slot, and less to count it.
struct ChunkSizes {
  uint32_t alone, least;
};
constexpr ChunkSizes kCounted = {8192, 2048}, kRanked = {2048, 512};

/// Shared memory that every kernel may have without asking, beside some that is static.
constexpr uint32_t kSharedBytes = 47 * 1024;

/// From one row to the next. Where there is no next one, the stride may be any number.
int64_t row_bytes_of(const MatrixLayout& layout) {
  return saturating_product(layout.stride_row, size_of(layout.dtype));
}

class Chooser {
 public:
  explicit Chooser(const MoeProblem& problem) : p_(problem) {
    params_.slots = uint32_t(slots_of(p_));
    params_.top_k = uint32_t(p_.top_k);
    params_.row_bytes = uint32_t(p_.columns * size_of(p_.row.dtype));
    params_.token_stride = row_bytes_of(p_.token);
    params_.row_stride = row_bytes_of(p_.row);
    params_.row_grad_stride = row_bytes_of(p_.row_grad);
    if (p_.scaled) params_.scales = FastDivmod(uint32_t(scales_of(p_)));
  }

  std::vector<MoeLaunch> launches() {
    switch (p_.operation) {
      case MoeOperation::offsets:
        count();
        break;
      case MoeOperation::sort:
        sort();
        break;
      case MoeOperation::permute:
        sort();
        scatter();
        break;
      case MoeOperation::gather:
        invert();
        scatter();
        break;
      case MoeOperation::combine:
        invert();
        combine();
        break;
      case MoeOperation::combine_backward:
        invert();
        combine_backward();
        break;
    }
    std::erase_if(launches_,
                  [](const MoeLaunch& launch) { return launch.shape.grid.x == 0 || launch.shape.grid.y == 0; });
    return std::move(launches_);
  }

 private:
  void add(MoeKernel kernel, const MoeConfig& config, Dim3 grid, uint32_t threads, uint32_t shared_bytes = 0) {
    launches_.push_back(
        {kernel,
         config,
         params_,
         {.grid = grid, .block = {threads, 1, 1}, .dynamic_shared_bytes = shared_bytes, .programmatic = true}});
  }

  /// A CTA for each chunk, and one without slots: offsets are zeros there.
  uint32_t deal(const ChunkSizes& sizes) {
    params_.experts = uint32_t(p_.experts);
    params_.bins = FastDivmod(params_.experts + 1);
    params_.chunk =
        params_.slots <= sizes.alone ? sizes.alone : max_of(ceil_div(params_.slots, kMostChunks), sizes.least);
    return max_of(ceil_div(params_.slots, params_.chunk), 1u);
  }

  void count() {
    const uint32_t ctas = deal(kCounted);
    add(MoeKernel::count, {.wide_ids = p_.wide_ids}, {ctas, 1, 1}, kCountThreads,
        params_.bins.divisor * uint32_t(sizeof(uint32_t)));
  }

  void sort() {
    const uint32_t ctas = deal(kRanked), bins = params_.bins.divisor;
    const uint32_t chunk = min_of(params_.chunk, max_of(params_.slots, 1u));
    uint32_t most = kRankThreads / kWarp;  // parts
    while (rank_shared_bytes(bins, most) > kSharedBytes) --most;
    params_.part = round_up(ceil_div(chunk, most), kWarp);
    params_.parts = ceil_div(chunk, params_.part);
    add(MoeKernel::rank, {.wide_ids = p_.wide_ids}, {ctas, 1, 1}, kRankThreads, rank_shared_bytes(bins, params_.parts));
  }

  void invert() { add(MoeKernel::invert, {}, {ceil_div(params_.slots, kRowThreads), 1, 1}, kRowThreads); }

  void scatter() {
    if (p_.scaled) return quantize();
    MoeConfig config{.width = widest_access()};
    config.lanes = std::bit_ceil(min_of(max_of(ceil_div(params_.row_bytes, config.width), 1u), kRowThreads));
    add(MoeKernel::scatter, config, pieces(config, kScatterAccesses), kRowThreads);
  }

  void quantize() {
    const MoeConfig config{.type = p_.row.dtype, .wide = p_.token.dtype, .width = widest_of_scaled()};
    const uint32_t teams = kRowThreads / kScaleLanes;
    const int64_t groups = p_.tokens * scales_of(p_);
    add(MoeKernel::quantize, config, {uint32_t(ceil_div(groups, int64_t(teams))), 1, 1}, kRowThreads);
  }

  void combine() {
    MoeConfig config{.type = p_.row.dtype, .has_weights = p_.has_weights, .width = widest_access()};
    if (p_.has_weights) config.weights = p_.weights_dtype;
    add(MoeKernel::combine, config, pieces(config, 1), kRowThreads);
  }

  void combine_backward() {
    add(MoeKernel::combine_backward, {.type = p_.row.dtype, .weights = p_.weights_dtype, .width = widest_access()},
        {ceil_div(params_.slots, kRowThreads / kWarp), 1, 1}, kRowThreads);
  }

  /// CTAs for each piece of each token, of which a thread has `accesses`.
  Dim3 pieces(const MoeConfig& config, uint32_t accesses) const {
    return {ceil_div(uint32_t(p_.tokens), kRowThreads / config.lanes),
            ceil_div(params_.row_bytes, config.lanes * config.width * accesses), 1};
  }

  /// The widest access, in bytes, that all rows are aligned to.
  uint32_t widest_access() const {
    uint32_t width = 16;
    for (const Placement& matrix : {tokens_of(p_), rows_of(p_), rows_grad_of(p_)}) {
      if (!matrix.empty()) width = min_of(width, cleave::widest_access(matrix));
    }
    return width;
  }

  /// The same of rows of 8 bits beside tokens, which take as many values at a time, in several accesses where theirs
  /// are the widest.
  uint32_t widest_of_scaled() const {
    const uint32_t of_rows = cleave::widest_access(rows_of(p_)), of_tokens = cleave::widest_access(tokens_of(p_));
    return of_tokens == 16 ? of_rows : min_of(of_rows, of_tokens / size_of(p_.token.dtype));
  }

  const MoeProblem& p_;
  MoeParams params_;
  std::vector<MoeLaunch> launches_;
};

/// The most threads of a CTA, and how many CTAs an SM must have room for: what
/// leaves each thread at most 64 registers.
const char* launch_bounds(MoeKernel kernel) {
  switch (kernel) {
    case MoeKernel::count:
      return "cleave::kCountThreads, 1";
    case MoeKernel::rank:
      return "cleave::kRankThreads, 1";
    default:
      return "cleave::kRowThreads, 8";
  }
}

}  // namespace

std::vector<MoeLaunch> moe_launches(const MoeProblem& problem) {
  return Chooser(problem).launches();
}

MoeScratch moe_scratch(const std::vector<MoeLaunch>& launches) {
  MoeScratch scratch;
  for (const MoeLaunch& launch : launches) {
    const MoeParams& params = launch.params;
    const uint32_t ctas = launch.shape.grid.x;
    if (launch.kernel <= MoeKernel::rank && ctas > 1) scratch.counts = size_t(ctas) * params.bins.divisor;
    if (launch.kernel >= MoeKernel::invert) scratch.positions = params.slots;
  }
  return scratch;
}

std::string translation_unit(MoeKernel kernel, const MoeConfig& config) {
  return translation_unit({
      .folder = "moe",
      .name = enumerator_name(kernel),
      .config = "MoeConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, wide_ids, type, has_weights, weights, wide, width, lanes),
      .launch_bounds = launch_bounds(kernel),
      .entry = moe_entry,
      .params = "MoeParams",
  });
}

}  // namespace cleave
