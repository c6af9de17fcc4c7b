// The micro-kernel adds products of whatever type in float32 registers. Float sums stay that way.
// Integer sums, and those whose blocks have scales, are taken over from it after a stretch of K:
//
// - int32: after each K block, short enough that float32 holds its sums exactly.
// - scales of blocks: where they change, every 128 elements of K.

#include "cpu/tile_product.h"

#include <algorithm>

#include "launch/product.h"

namespace cleave::cpu {
namespace {

static_assert(kMaxTileK * 128 * 128 <= 1 << 24, "float32 must hold the sums of a K block exactly");

/// A micro-tile's sums over a stretch of K.
struct Stretch {
  float sums[kMicroRows][kMicroColumns];
};

/// The scales of the `count` rows (of D's columns: of their gates, or ups) from `row` on, of those that a list names if
/// there is one; the last one's where there are no more.
template <uint32_t count>
struct StretchScales {
  float of[count];

  StretchScales(const ScaleLayout& layout, const float* data, uint32_t batch, int64_t row, int64_t rows, int64_t k,
                const ListParams& listed, GateColumns gates = {}, uint32_t is_up = 0) {
    const float* const block = data + batch * layout.stride_batch + k / kScaleBlock * layout.stride_k;
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t own = min_of(row + i, rows - 1);
      const int64_t line =
          listed.entries == nullptr ? gates.of(uint32_t(own), is_up) : scale_row<true>(listed, uint32_t(own));
      of[i] = block[(layout.rows == 1 ? line : line / kScaleBlock) * layout.stride_row];
    }
  }
};

}  // namespace

template <class Sum>
TileProduct<Sum>::TileProduct(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling)
    : problem_(problem),
      arguments_(arguments),
      tiling_(tiling),
      operands_(problem, arguments, tiling),
      listed_(list_params(problem)),
      micro_kernel_(micro_kernel()) {
  listed_.entries = arguments.gather;
}

template <class Sum>
void TileProduct<Sum>::operator()(const WorkTile& work, Scratch<Sum>& scratch, Sum* sums) const {
  const GemmProblem& p = problem_;
  const Tiling& t = tiling_;
  const TileArea area = area_of(p, t, work);

  std::fill_n(sums, t.tile_elements(), Sum(0));
  for (uint32_t i = 0; i < work.k_count; ++i) {
    const uint32_t first = area.k.begin + work.k_block(i) * t.tile_k;
    const uint32_t k = min_of(t.tile_k, area.k.end - first);
    operands_.pack_a(work, {area.row, area.rows}, {first, k}, scratch.a.values);
    if (in_parts(p.precision)) scratch.a.split(p.precision, round_up(area.rows, kMicroRows) * k);
    for (uint32_t part = 0; part < t.parts; ++part) {
      operands_.pack_b(work, {area.column, area.columns}, part == 1, {first, k}, scratch.b.values);
      if (in_parts(p.precision)) scratch.b.split(p.precision, round_up(area.columns, kMicroColumns) * k);
      const auto multiply_all = [&](const float* a, const float* b) {
        multiply_block({work.batch, area.row, area.column, first, k, part, area.row + area.rows}, area.rows,
                       area.columns, a, b, sums + part * t.columns());
      };
      multiply_all(scratch.a.values, scratch.b.values);
      if (in_parts(p.precision)) {
        multiply_all(scratch.a.low, scratch.b.crossed);
        multiply_all(scratch.a.crossed, scratch.b.low);
      }
    }
  }
}

template <class Sum>
void TileProduct<Sum>::multiply_block(const Step& first, uint32_t rows, uint32_t columns, const float* a,
                                      const float* b, Sum* sums) const {
  for (uint32_t j = 0; j < columns; j += kMicroColumns) {
    for (uint32_t r = 0; r < rows; r += kMicroRows) {
      Step step = first;
      step.row += r;
      step.column += j;
      multiply(step, a + r * first.k, b + j * first.k, sums + r * tiling_.tile_n + j);
    }
  }
}

template <>
void TileProduct<int32_t>::multiply(const Step& step, const float* a, const float* b, int32_t* sums) const {
  Stretch stretch;
  micro_kernel_.store(step.k, a, b, stretch.sums[0], kMicroColumns);
  for (uint32_t i = 0; i < kMicroRows; ++i, sums += tiling_.tile_n) {
    for (uint32_t j = 0; j < kMicroColumns; ++j) {
      sums[j] = add(sums[j], int32_t(stretch.sums[i][j]));
    }
  }
}

template <>
void TileProduct<float>::multiply(const Step& step, const float* a, const float* b, float* sums) const {
  const GemmProblem& p = problem_;
  if (p.scale_a.kind != Scaling::block) return micro_kernel_.add(step.k, a, b, sums, tiling_.tile_n);

  for (uint32_t begin = 0, end; begin < step.k; begin = end) {
    const int64_t first = step.first + begin;
    end = min_of(step.k, begin + kScaleBlock - uint32_t(first % kScaleBlock));
    Stretch stretch;
    micro_kernel_.store(end - begin, a + begin * kMicroRows, b + begin * kMicroColumns, stretch.sums[0], kMicroColumns);
    const StretchScales<kMicroRows> scale_a(p.scale_a, arguments_.scale_a, step.batch, step.row, step.rows_end, first,
                                            listed_);
    const StretchScales<kMicroColumns> scale_b(p.scale_b, arguments_.scale_b, step.batch, step.column, p.n, first, {},
                                               gate_columns(p), step.is_up);
    for (uint32_t i = 0; i < kMicroRows; ++i) {
      float* const line = sums + i * tiling_.tile_n;
      for (uint32_t j = 0; j < kMicroColumns; ++j) {
        line[j] += stretch.sums[i][j] * (scale_a.of[i] * scale_b.of[j]);
      }
    }
  }
}

template class TileProduct<float>;
template class TileProduct<int32_t>;

}  // namespace cleave::cpu
