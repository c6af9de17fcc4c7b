#include "quantize/launches.h"

#include <bit>

#include "cleave/core/math.h"
#include "jit/translation_unit.h"
#include "quantize/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kWarp = 32;

/// Threads that share a row at most.
constexpr int64_t kMostRowThreads = 1024;

/// CTAs of the measuring kernel for each SM: all the threads that it has room for.
constexpr uint32_t kMeasureCtas = 4;

class Chooser {
 public:
  Chooser(const QuantizeProblem& problem, const DeviceInfo& device) : p_(problem), device_(device) {
    config_.x = p_.x.dtype;
    config_.q = p_.q.dtype;
    config_.given_scale = p_.given_scale;
    config_.symmetric = p_.symmetric;
    config_.has_smooth = p_.has_smooth;
    config_.gated = p_.gated;
    config_.ue8m0 = p_.ue8m0_scale;
    config_.width = min_of(widest_access(x_of(p_)) / size_of(p_.x.dtype), widest_access(q_of(p_)));
    if (p_.has_smooth && p_.smooth_alignment < 16) config_.width = min_of(config_.width, p_.smooth_alignment / 4);
    if (p_.norm.kind != Norm::none) place_norm();
    if (p_.gated) {  // ups begin behind the gates
      const uint32_t size = size_of(p_.x.dtype);
      config_.width = min_of(config_.width, common_alignment(uint64_t(p_.cols) * size) / size);
    }

    params_.rows = uint32_t(p_.rows);
    params_.cols = p_.cols;
    params_.x_stride = p_.x.stride_row;
    params_.q_stride = p_.q.stride_row;
    // A stride of 0 where there is one scale for all.
    const bool tensor = p_.granularity == Granularity::tensor;
    const bool row = p_.granularity == Granularity::row;
    params_.scale = {nullptr, tensor ? 0 : p_.scale.stride_row, tensor || row ? 0 : p_.scale.stride_col};
    params_.scale_t = {nullptr, p_.scale_t.stride_row, p_.scale_t.stride_col};
    params_.q_t_stride = p_.q_t.stride_row;
    params_.zero_stride = row ? 1 : 0;
  }

  std::vector<QuantizeLaunch> launches() {
    std::vector<QuantizeLaunch> launches;
    const bool square = p_.granularity == Granularity::block_128x128;
    const bool blocks = square || p_.granularity == Granularity::block_1x128;
    if (p_.norm.kind != Norm::none) {
      const bool tiled = (square && !p_.given_scale) || p_.has_transpose;
      if (p_.groups > 0) launches.push_back(bands());
      if (p_.granularity == Granularity::tensor && !p_.given_scale) launches.push_back(measure_normed());
      if (tiled) launches.push_back(find_norms());
      if (square) params_.rows_per_scale_log2 = std::countr_zero(kScaleBlock);
      launches.push_back(tiled ? tiles(square) : normed(blocks));
    } else if (p_.granularity == Granularity::tensor) {
      join_rows();
      if (!p_.given_scale) launches.push_back(measure());
      config_.given_scale = true;
      if (!x_of(p_).empty()) launches.push_back(pieces());
    } else if (p_.given_scale) {
      if (square) params_.rows_per_scale_log2 = std::countr_zero(kScaleBlock);
      launches.push_back(blocks ? groups(kScaleBlock) : pieces());
    } else if (square || p_.has_transpose) {
      if (p_.groups > 0) launches.push_back(bands());
      launches.push_back(tiles(square));
    } else {
      launches.push_back(blocks ? groups(kScaleBlock) : rows());
    }
    std::erase_if(launches, [](const QuantizeLaunch& launch) { return launch.shape.grid.x == 0; });
    return launches;
  }

 private:
  /// Most values that a thread holds: dividing by `smooth` needs registers too, as do the ups beside gates of 32 bits.
  uint32_t held_values() const {
    const bool needs_more = p_.has_smooth || (p_.gated && size_of(p_.x.dtype) == 4);
    return needs_more ? kHeldValues / 2 : kHeldValues;
  }
  uint32_t most_held() const { return held_values() / config_.width; }  // accesses

  /// Fewer accesses than threads that the GPU can have: one for each thread is fastest.
  bool is_small() const {
    constexpr double kThreads = 2048;
    return double(p_.rows) * double(p_.cols) < kThreads * device_.num_sms * config_.width;
  }

  void place_norm() {
    const RowNorm& norm = p_.norm;
    config_.norm = norm.kind;
    config_.has_weight = norm.has_weight;
    config_.has_bias = norm.has_bias;
    config_.weight = norm.dtype;
    config_.has_residual = p_.has_residual;
    config_.residual = p_.residual.dtype;
    config_.has_normed = p_.has_normed;
    // Wider elements than x's are two accesses of 16 bytes.
    const auto narrow = [&](uint32_t bytes, DType type) {
      if (bytes < 16) config_.width = min_of(config_.width, max_of(bytes / size_of(type), 1u));
    };
    if (norm.has_weight || norm.has_bias) narrow(norm.alignment, norm.dtype);
    for (const Placement& matrix : {residual_of(p_), residual_out_of(p_), normed_out_of(p_)}) {
      if (matrix.batch > 0) narrow(widest_access(matrix), matrix.layout.dtype);
    }
    params_.residual_stride = p_.residual.stride_row;
    params_.residual_out_stride = p_.residual_out.stride_row;
    params_.normed_stride = p_.normed_out.stride_row;
    params_.eps = norm.eps;
    params_.weight_offset = norm.zero_centered ? 1.0f : 0.0f;
  }

  /// A contiguous tensor is one long row, unless its columns matter.
  void join_rows() {
    if (p_.has_smooth || p_.x.stride_row != p_.cols || p_.q.stride_row != p_.cols) return;
    params_.cols = p_.rows * p_.cols;
    params_.rows = 1;
  }

  static LaunchShape shape(uint32_t ctas, uint32_t threads) {
    return {.grid = {ctas, 1, 1}, .block = {threads, 1, 1}, .programmatic = true};
  }

  /// A launch for groups of `cols` elements.
  QuantizeLaunch launch(QuantizeKernel kernel, int64_t cols, uint32_t threads) const {
    QuantizeLaunch made{kernel, config_, params_, shape(0, threads)};
    const int64_t per_row = cols == 0 ? 1 : ceil_div(params_.cols, cols);
    made.params.group_cols = uint32_t(cols);
    made.params.groups = uint32_t(per_row * params_.rows);
    made.params.groups_per_row = FastDivmod(uint32_t(max_of<int64_t>(per_row, 1)));
    return made;
  }

  /// Gives groups of up to `cols` elements as many lanes of a warp as they can use, and each lane
  /// at most `hold` accesses. Returns how many elements that is.
  int64_t deal(int64_t cols, uint32_t hold) {
    const int64_t accesses = max_of<int64_t>(ceil_div<int64_t>(cols, config_.width), 1);
    config_.lanes = uint32_t(std::bit_ceil(uint64_t(min_of<int64_t>(accesses, kWarp))));
    config_.hold = uint32_t(std::bit_ceil(uint64_t(min_of<int64_t>(ceil_div<int64_t>(accesses, config_.lanes), hold))));
    return min_of(cols, int64_t(config_.lanes) * config_.hold * config_.width);
  }

  /// Groups that lanes of a warp hold.
  QuantizeLaunch dealt(int64_t cols) {
    if (!is_small()) {
      // More loads under way together would not be faster.
      constexpr uint32_t kMostBatch = 4;
      config_.batch = min_of(held_values() / (config_.hold * config_.width), kMostBatch);
    }
    QuantizeLaunch made = launch(QuantizeKernel::quantize_rows, cols, kLaneThreads);
    made.shape.grid.x = ceil_div(made.params.groups, kLaneThreads / config_.lanes * config_.batch);
    return made;
  }

  /// Groups of `cols` elements, each in registers as a whole.
  QuantizeLaunch groups(int64_t cols) {
    deal(cols, most_held());
    // What is done once for a group, every lane does: half as many, with twice as much of it, are faster.
    if (!is_small() && config_.lanes > 1 && 2 * config_.hold <= most_held()) config_.lanes /= 2, config_.hold *= 2;
    return dealt(cols);
  }

  /// Rows in pieces of any length, where the scale does not depend on them.
  QuantizeLaunch pieces() { return dealt(deal(params_.cols, is_small() ? 1 : most_held())); }

  QuantizeLaunch measure() {
    const int64_t piece = deal(params_.cols, is_small() ? 1 : most_held());
    QuantizeLaunch made = launch(QuantizeKernel::measure, piece, kMeasureThreads);
    const uint32_t enough = ceil_div(made.params.groups, kMeasureThreads / config_.lanes);
    const uint32_t fit = uint32_t(device_.num_sms) * kMeasureCtas;
    made.shape.grid.x = max_of(min_of(enough, fit), 1u);  // one writes the scale of an empty tensor
    return made;
  }

  /// Whole rows: for each a part of a warp, or a CTA.
  QuantizeLaunch rows() {
    const int64_t accesses = ceil_div<int64_t>(p_.cols, config_.width);
    if (accesses <= kWarp * most_held()) return groups(p_.cols);
    config_.hold = is_small() ? 1 : most_held();
    while (config_.hold < most_held() && kMostRowThreads * config_.hold < accesses) config_.hold *= 2;
    return row_ctas(QuantizeKernel::quantize_rows);
  }

  /// Whole rows of what is to be normalised first. Which threads share one follows from its columns alone, and so
  /// does the order of its sums.
  QuantizeLaunch normed(bool blocks) {
    config_.blocks = blocks;
    // What is loaded for a value is in registers at the same time, and each access has some of its own.
    const uint32_t vectors = uint32_t(p_.norm.has_weight) + uint32_t(p_.norm.has_bias);
    const uint32_t bytes =
        size_of(p_.x.dtype) + (p_.has_residual ? size_of(p_.residual.dtype) : 0) + vectors * size_of(p_.norm.dtype);
    constexpr uint32_t kMostHold = 4, kMostBytes = 8;
    const uint32_t values = bytes > kMostBytes ? kHeldNormedValues / 2 : kHeldNormedValues;
    const uint32_t hold = min_of(values / config_.width, kMostHold);
    if (ceil_div<int64_t>(p_.cols, config_.width) <= kWarp * hold) {
      deal(p_.cols, hold);
      QuantizeLaunch made = launch(QuantizeKernel::quantize_normed, p_.cols, kLaneThreads);
      made.shape.grid.x = ceil_div(made.params.groups, kLaneThreads / config_.lanes);
      return made;
    }
    config_.whole = p_.cols <= kMostRowThreads * hold * config_.width;
    // Reading again needs registers, too; 128 neighbours are a warp's.
    const uint32_t fewest = blocks ? max_of(kScaleBlock / (kWarp * config_.width), 1u) : 1u;
    config_.hold = config_.whole ? hold : max_of(hold / 2, fewest);
    return row_ctas(QuantizeKernel::quantize_normed);
  }

  /// The scale of all that is normalised, with which it is normalised again.
  QuantizeLaunch measure_normed() {
    config_.has_normed = false;
    QuantizeLaunch made = normed(false);
    made.kernel = QuantizeKernel::measure_normed;
    made.shape.grid.x = max_of(made.shape.grid.x, 1u);  // one writes the scale of an empty tensor
    config_.has_normed = p_.has_normed;
    config_.given_scale = true;
    config_.summed = p_.has_residual;
    return made;
  }

  /// The statistics of rows that are normalised in tiles: as whole rows have them.
  QuantizeLaunch find_norms() {
    const QuantizeConfig of_tiles = config_;
    QuantizeLaunch made = normed(true);
    made.kernel = QuantizeKernel::find_norms;
    made.config.has_weight = made.config.has_bias = made.config.has_normed = made.config.has_smooth = false;
    config_ = of_tiles;
    return made;
  }

  /// A CTA for each row.
  QuantizeLaunch row_ctas(QuantizeKernel kernel) {
    config_.lanes = 0;
    const int64_t accesses = ceil_div<int64_t>(p_.cols, config_.width);
    const int64_t threads = round_up<int64_t>(ceil_div<int64_t>(accesses, config_.hold), kWarp);
    QuantizeLaunch made = launch(kernel, p_.cols, uint32_t(min_of(threads, kMostRowThreads)));
    made.shape.grid.x = made.params.groups;
    return made;
  }

  /// Rows in no group are one more, but without columns of the transpose.
  QuantizeLaunch bands() {
    params_.group_bounds = {.wide = p_.wide_offsets, .count = uint32_t(p_.groups), .extent = uint32_t(p_.rows)};
    params_.bands = uint32_t(padded_extent(p_.rows, p_.groups + 1) / kScaleBlock);
    params_.padded_bands = uint32_t(extent_t(p_) / kScaleBlock);
    return {QuantizeKernel::find_bands, {}, params_, shape(1, kBandThreads)};
  }

  QuantizeLaunch tiles(bool square) {
    config_.square = square;
    config_.grouped = p_.groups > 0;
    // Norms that are divided by `smooth`, or written as well, need registers, too.
    const bool needs_more = p_.norm.kind != Norm::none && (p_.has_smooth || p_.has_normed);
    if (needs_more) config_.width = min_of(config_.width, 4u);
    if (p_.has_transpose) config_.width_t = widest_access(q_t_of(p_));
    QuantizeLaunch made = launch(QuantizeKernel::quantize_tiles, kScaleBlock, kTileThreads);
    const int64_t bands = config_.grouped ? params_.bands : ceil_div<int64_t>(p_.rows, kScaleBlock);
    made.params.groups = uint32_t(bands * ceil_div<int64_t>(p_.cols, kScaleBlock));
    made.shape.grid.x = made.params.groups;
    return made;
  }

  const QuantizeProblem& p_;
  const DeviceInfo& device_;
  QuantizeConfig config_;
  QuantizeParams params_;
};

/// The most threads of a CTA, and how many CTAs an SM must have room for: what
/// leaves each thread at most 64 registers.
const char* launch_bounds(QuantizeKernel kernel, const QuantizeConfig& config) {
  switch (kernel) {
    case QuantizeKernel::quantize_rows:
    case QuantizeKernel::quantize_normed:
    case QuantizeKernel::measure_normed:
    case QuantizeKernel::find_norms:
      return config.lanes == 0 ? "1024, 1" : "cleave::kLaneThreads, 8";
    case QuantizeKernel::measure:
      return "cleave::kMeasureThreads, 2";
    case QuantizeKernel::find_bands:
      return "cleave::kBandThreads, 1";
    case QuantizeKernel::quantize_tiles:
      break;
  }
  return "cleave::kTileThreads, 2";
}

}  // namespace

std::vector<QuantizeLaunch> quantize_launches(const QuantizeProblem& problem, const DeviceInfo& device) {
  return Chooser(problem, device).launches();
}

WorkspaceSize quantize_workspace(const std::vector<QuantizeLaunch>& launches) {
  if (launches.empty()) return {};
  constexpr size_t kCounterSize = 3 * sizeof(uint32_t);  // see QuantizeParams::counters
  const QuantizeLaunch& first = launches.front();
  const bool measures = first.kernel == QuantizeKernel::measure || first.kernel == QuantizeKernel::measure_normed;
  const QuantizeLaunch& last = launches.back();
  const bool tiled = last.kernel == QuantizeKernel::quantize_tiles && last.config.norm != Norm::none;
  const size_t statistics = tiled ? last.params.rows * sizeof(RowStatistics) : 0;
  return {.counters = measures ? kCounterSize : 0, .partials = last.params.bands * sizeof(Band) + statistics};
}

std::string translation_unit(QuantizeKernel kernel, const QuantizeConfig& config) {
  return translation_unit({
      .folder = "quantize",
      .name = enumerator_name(kernel),
      .config = "QuantizeConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, x, q, width, given_scale, symmetric, has_smooth, gated, ue8m0, norm,
                                      has_weight, has_bias, weight, has_residual, residual, has_normed, summed, whole,
                                      blocks, lanes, hold, batch, square, width_t, grouped),
      .launch_bounds = launch_bounds(kernel, config),
      .entry = quantize_entry,
      .params = "QuantizeParams",
  });
}

}  // namespace cleave
