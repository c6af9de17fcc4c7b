// Quantisation on the host.
#include <vector>

#include "cleave/core/sigmoid.h"
#include "cleave/quantize/norm.h"
#include "cleave/quantize/quantize_params.h"
#include "cpu/host_plan.h"
#include "quantize/problem.h"

namespace cleave {
namespace {

struct Area {
  int64_t row, col, rows, cols;
};

/// One run.
class Job {
 public:
  Job(const QuantizeProblem& problem, const QuantizeArguments& arguments, uint32_t threads)
      : p_(problem),
        arguments_(arguments),
        threads_(threads_for(p_.rows * p_.cols, threads)),
        square_(p_.granularity == Granularity::block_128x128),
        tensor_(p_.granularity == Granularity::tensor) {}

  void run() {
    if (p_.norm.kind != Norm::none) find_statistics();
    if (tensor_ && !p_.given_scale) measure();
    quantize_rows();
    if (p_.has_transpose && !square_) quantize_columns();
    if (p_.has_normed) write_normed();  // last, as it may be x
  }

 private:
  static constexpr int64_t kBlock = kScaleBlock;

  /// The whole tensor's scale. Maxima do not depend on the order in which they are taken.
  void measure() const {
    std::vector<Reach> reaches{size_t(p_.rows)};
    for_each(threads_, p_.rows, [&](int64_t row) { reaches[size_t(row)] = reach_of({row, 0, 1, p_.cols}); });
    Reach reach;
    for (const Reach& of_row : reaches) reach.add(of_row);
    write(0, 0, quantizer_for(p_.q.dtype, p_.symmetric, p_.ue8m0_scale, reach));
  }

  /// Those of all rows, after adding the residual.
  void find_statistics() {
    statistics_.resize(size_t(p_.rows));
    for_each(threads_, p_.rows, [&](int64_t row) {
      if (p_.has_residual) {
        for (int64_t col = 0; col < p_.cols; ++col) {
          const float sum = element(p_.x, arguments_.x, row, col) + element(p_.residual, arguments_.residual, row, col);
          store_element(p_.residual_out.dtype, arguments_.residual_out, row * p_.residual_out.stride_row + col, sum);
        }
      }
      const auto mean_of = [&](const auto& value) {
        double sum = 0.0;
        for (int64_t col = 0; col < p_.cols; ++col) sum += value(double(summed(row, col)));
        return float(sum / double(p_.cols));
      };
      const float mean = p_.norm.kind == Norm::layer_norm ? mean_of([](double x) { return x; }) : 0.0f;
      const float square = mean_of([&](double x) { return (x - mean) * (x - mean); });
      statistics_[size_t(row)] = row_statistics(mean, square, p_.norm.eps);
    });
  }

  void quantize_rows() const {
    const bool blocks = square_ || p_.granularity == Granularity::block_1x128;
    const int64_t height = square_ ? kBlock : 1, width = blocks ? kBlock : p_.cols;
    const int64_t groups = blocks ? ceil_div(p_.cols, width) : 1;
    for_each(threads_, ceil_div(p_.rows, height), [&](int64_t band) {
      for (int64_t group = 0; group < groups; ++group) {
        const Area area = clipped({band * height, group * width, height, width});
        const Quantizer quantizer = quantizer_of(area, band, group);
        visit(area, [&](int64_t row, int64_t col) { store(p_.q, arguments_.q, row, col, quantizer, value(row, col)); });
        if (!p_.has_transpose || !square_) continue;
        visit(area,
              [&](int64_t row, int64_t col) { store(p_.q_t, arguments_.q_t, col, row, quantizer, value(row, col)); });
        scale_at(p_.scale_t, arguments_.scale_t, group, band) = quantizer.scale;
      }
    });
  }

  void write_normed() const {
    for_each(threads_, p_.rows, [&](int64_t row) {
      for (int64_t col = 0; col < p_.cols; ++col)
        store_element(p_.normed_out.dtype, arguments_.normed_out, row * p_.normed_out.stride_row + col,
                      unsmoothed(row, col));
    });
  }

  /// The transpose, each 128 neighbours of a column with a scale of their own.
  void quantize_columns() const {
    const std::vector<Band> bands = find_bands();
    for_each(threads_, int64_t(bands.size()), [&](int64_t i) {
      const Band& band = bands[size_t(i)];
      const int64_t begin = i * kBlock, end = min_of(begin + kBlock, extent_t(p_));
      for (int64_t col = 0; col < p_.cols; ++col) {
        const Area area{band.row, col, band.rows, 1};
        const Quantizer quantizer = quantizer_for(p_.q.dtype, true, p_.ue8m0_scale, reach_of(area));
        visit(area, [&](int64_t row, int64_t) {
          store(p_.q_t, arguments_.q_t, col, begin + row - band.row, quantizer, value(row, col));
        });
        for (int64_t padding = begin + band.rows; padding < end; ++padding)
          store(p_.q_t, arguments_.q_t, col, padding, quantizer, 0.0f);
        scale_at(p_.scale_t, arguments_.scale_t, col, i) = quantizer.scale;
      }
    });
  }

  /// The rows of x that each 128 columns of the transpose are made of.
  std::vector<Band> find_bands() const {
    std::vector<Band> bands(size_t(ceil_div(extent_t(p_), kBlock)));
    uint32_t next = 0;
    const auto cover = [&](uint32_t begin, uint32_t end) {
      const uint32_t count = ceil_div(end - begin, kScaleBlock);
      for (uint32_t i = 0; i < count && next < bands.size(); ++i) bands[next++] = band_from(begin, end, i, true);
    };
    if (p_.groups == 0) cover(0, uint32_t(p_.rows));
    const GroupParams bounds{.offsets = arguments_.offsets,
                             .wide = p_.wide_offsets,
                             .count = uint32_t(p_.groups),
                             .extent = uint32_t(p_.rows)};
    for (uint32_t group = 0; group < bounds.count; ++group) {
      const GroupRange range = group_range(bounds, group);
      const uint32_t begin = next * kScaleBlock;
      cover(range.begin, range.end);
      arguments_.padded_ends[group] = int32_t(min_of<int64_t>(begin + range.size(), extent_t(p_)));
    }
    return bands;
  }

  Quantizer quantizer_of(const Area& area, int64_t band, int64_t group) const {
    if (tensor_ || p_.given_scale) {
      const int64_t row = tensor_ ? 0 : band;
      return quantizer_with(scale_at(p_.scale, arguments_.scale, row, group), p_.symmetric ? 0 : arguments_.zero[row]);
    }
    const Quantizer quantizer = quantizer_for(p_.q.dtype, p_.symmetric, p_.ue8m0_scale, reach_of(area));
    write(band, group, quantizer);
    return quantizer;
  }

  void write(int64_t band, int64_t group, const Quantizer& quantizer) const {
    scale_at(p_.scale, arguments_.scale, band, group) = quantizer.scale;
    if (!p_.symmetric) arguments_.zero[band] = quantizer.zero;
  }

  Reach reach_of(const Area& area) const {
    Reach reach;
    visit(area, [&](int64_t row, int64_t col) { reach.add(p_.symmetric, value(row, col)); });
    return reach;
  }

  float value(int64_t row, int64_t col) const {
    const float x = unsmoothed(row, col);
    return p_.has_smooth ? x / arguments_.smooth[col] : x;
  }

  float unsmoothed(int64_t row, int64_t col) const {
    const float x = summed(row, col);
    if (p_.gated) return silu(x) * summed(row, p_.cols + col);
    if (p_.norm.kind != Norm::none) {
      const RowNorm& norm = p_.norm;
      const float offset = norm.zero_centered ? 1.0f : 0.0f;
      const float weight = norm.has_weight ? load_element(norm.dtype, arguments_.weight, col) + offset : 1.0f;
      const float bias = norm.has_bias ? load_element(norm.dtype, arguments_.bias, col) : 0.0f;
      return normalized(statistics_[size_t(row)], x, weight, bias);
    }
    return x;
  }

  /// x, or what was written of x + residual.
  float summed(int64_t row, int64_t col) const {
    return p_.has_residual ? element(p_.residual_out, arguments_.residual_out, row, col)
                           : element(p_.x, arguments_.x, row, col);
  }

  static float element(const MatrixLayout& layout, const void* data, int64_t row, int64_t col) {
    return load_element(layout.dtype, data, row * layout.stride_row + col);
  }

  void store(const MatrixLayout& layout, void* q, int64_t row, int64_t col, const Quantizer& quantizer, float x) const {
    store_element(layout.dtype, q, row * layout.stride_row + col, quantized(quantizer, p_.symmetric, x));
  }

  static float& scale_at(const MatrixLayout& layout, float* scales, int64_t row, int64_t col) {
    return scales[row * layout.stride_row + col * layout.stride_col];
  }

  Area clipped(Area area) const {
    area.rows = min_of(area.rows, p_.rows - area.row);
    area.cols = min_of(area.cols, p_.cols - area.col);
    return area;
  }

  template <class Visitor>
  static void visit(const Area& area, const Visitor& visitor) {
    for (int64_t row = area.row; row < area.row + area.rows; ++row) {
      for (int64_t col = area.col; col < area.col + area.cols; ++col) visitor(row, col);
    }
  }

  const QuantizeProblem& p_;
  const QuantizeArguments& arguments_;
  const uint32_t threads_;
  const bool square_, tensor_;
  std::vector<RowStatistics> statistics_;  // by row, of a norm
};

}  // namespace

std::shared_ptr<const QuantizePlan> make_cpu_plan(const QuantizeProblem& problem, uint32_t threads) {
  return std::make_shared<HostPlan<QuantizePlan, QuantizeProblem, QuantizeArguments, Job>>(problem, threads);
}

}  // namespace cleave
