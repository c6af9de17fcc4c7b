#include "problem/overlap.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "cleave/core/math.h"

namespace cleave {
namespace {

// Products of two strides do not fit 64 bits.
__extension__ using Wide = __int128;

struct Dimension {
  int64_t size, stride;
};

/// Smallest x >= 0 with low <= (step * x) mod modulus <= high; -1 if there is none. Euclid's
/// algorithm, carried out on an interval: 0 <= step < modulus, 0 <= low <= high < modulus.
Wide first_multiple_in(Wide step, Wide modulus, Wide low, Wide high) {
  if (low == 0) return 0;
  if (step == 0) return -1;
  const Wide x = ceil_div(low, step);
  if (x * step <= high) return x;
  const Wide wraps = first_multiple_in(modulus % step, step, step - high % step, step - low % step);
  return wraps < 0 ? -1 : ceil_div(low + modulus * wraps, step);
}

/// Runs of `run` elements start at i * inner.stride + j * outer.stride; do two of them meet?
bool runs_meet(int64_t run, const Dimension& inner, const Dimension& outer) {
  if (inner.stride < run || outer.stride < run) return true;
  // They meet where |j * outer - i * inner| < run for some i and j, both at least 1. The smallest
  // such j, with its smallest i, decides: larger ones have larger i. Shifted by run - 1, "near a
  // multiple of inner" is an interval of residues, and counting starts at j = 1.
  const Wide near = 2 * Wide(run) - 1;
  const Wide modulus = inner.stride;
  const Wide first = (Wide(outer.stride) + run - 1) % modulus;
  Wide j = 1;
  if (first >= near) {
    const Wide low = modulus - first;
    const Wide more = first_multiple_in(outer.stride % modulus, modulus, low, low + near - 1);
    if (more < 0) return false;
    j += more;
  }
  return j < outer.size && ceil_div(j * outer.stride - run + 1, modulus) < inner.size;
}

int64_t extent_bytes(const Placement& p) {
  const int64_t last = (p.rows - 1) * p.layout.stride_row + (p.columns - 1) * p.layout.stride_col +
                       (p.batch - 1) * p.layout.stride_batch;
  return (last + 1) * size_of(p.layout.dtype);
}

/// Do [0, x) and [delta, delta + y) stay apart when both repeat every `period` bytes?
bool apart(int64_t x, int64_t y, int64_t delta, int64_t period) {
  if (period <= 0) return false;
  const int64_t offset = ((delta % period) + period) % period;
  return offset >= x && offset + y <= period;
}

/// Bytes from one batch entry to the next; 0 without a next one.
int64_t batch_period(const Placement& p) {
  return p.batch > 1 ? p.layout.stride_batch * int64_t(size_of(p.layout.dtype)) : 0;
}

/// One matrix as equal lines, in bytes: the extent of a line and the distance from one to the next.
struct Lines {
  int64_t extent, pitch;
};

Lines lines(const Placement& p) {
  const int64_t size = size_of(p.layout.dtype);
  const int64_t along_rows = p.rows > 1 ? p.layout.stride_row : 0;
  const int64_t along_columns = p.columns > 1 ? p.layout.stride_col : 0;
  return along_rows > along_columns ? Lines{((p.columns - 1) * along_columns + 1) * size, along_rows * size}
                                    : Lines{((p.rows - 1) * along_rows + 1) * size, along_columns * size};
}

}  // namespace

bool overlaps_itself(const Placement& matrix) {
  if (matrix.empty()) return false;
  const MatrixLayout& layout = matrix.layout;
  const std::array all{Dimension{matrix.rows, layout.stride_row}, Dimension{matrix.columns, layout.stride_col},
                       Dimension{matrix.batch, layout.stride_batch}};
  std::vector<Dimension> real;
  std::copy_if(all.begin(), all.end(), std::back_inserter(real), [](const Dimension& d) { return d.size > 1; });
  std::sort(real.begin(), real.end(), [](const Dimension& x, const Dimension& y) { return x.stride < y.stride; });
  if (real.empty()) return false;
  if (real.front().stride == 0) return true;

  auto next = real.begin();
  const int64_t run = next->stride == 1 ? (next++)->size : 1;
  switch (real.end() - next) {
    case 0:
      return false;
    case 1:
      return next->stride < run;
    default:
      return runs_meet(run, next[0], next[1]);
  }
}

bool may_overlap(const Placement& x, const void* x_data, const Placement& y, const void* y_data) {
  if (x.empty() || y.empty()) return false;
  const int64_t delta = int64_t(reinterpret_cast<uintptr_t>(y_data) - reinterpret_cast<uintptr_t>(x_data));
  if (delta >= extent_bytes(x) || -delta >= extent_bytes(y)) return false;

  // Cut from one buffer along the batch: the matrices of one batch entry, seen modulo the batch
  // stride.
  const int64_t x_period = batch_period(x), y_period = batch_period(y);
  const Placement x_entry{x.layout, x.rows, x.columns, 1}, y_entry{y.layout, y.rows, y.columns, 1};
  if (x_period == y_period && apart(extent_bytes(x_entry), extent_bytes(y_entry), delta, x_period)) {
    return false;
  }

  // Cut along rows or columns: one line of each, seen modulo the pitch, if the pitch divides all
  // else.
  const Lines x_lines = lines(x), y_lines = lines(y);
  const int64_t pitch = x_lines.pitch;
  if (pitch == 0 || pitch != y_lines.pitch || x_period % pitch != 0 || y_period % pitch != 0) {
    return true;
  }
  return !apart(x_lines.extent, y_lines.extent, delta, pitch);
}

}  // namespace cleave
