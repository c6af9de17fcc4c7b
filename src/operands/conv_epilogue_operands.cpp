// The operands of epilogue functions of convolutions, in torch's shapes. D is [N, C, ...]: a row has a value for each
// channel, a column one for each pixel. wgrad's D is [K, C / groups, ...]: a row has a value for each tap and
// channel, a column one for each filter.

#include <fmt/ranges.h>

#include <algorithm>

#include "operands/epilogue_operands.h"
#include "operands/place_epilogue.h"

namespace cleave {
namespace {

using detail::EpilogueRole;

class ConvPlacer {
 public:
  explicit ConvPlacer(const ConvCall& call) : call_(call), p_(call.problem) {}

  const char* leader() const { return p_.conv.kind == Conv::fprop ? "input" : "grad_output"; }

  void place(const Operand& x, const char* name, EpilogueRole role, EpilogueLayout& layout) const {
    const bool is_filter = p_.conv.kind == Conv::wgrad, written = role == EpilogueRole::output;
    switch (layout.shape) {
      case InputShape::scalar:
        if (std::any_of(x.shape, x.shape + x.ndim, [](int64_t size) { return size != 1; }))
          refuse_shape(x, name, layout.shape);
        return;
      case InputShape::row:
        return is_filter ? place_plane(x, name, filter_stride(x), 0, written, layout)
                         : place_line(x, name, p_.n, 1, layout);
      case InputShape::column:
        return is_filter ? place_line(x, name, p_.m, 0, layout)
                         : place_plane(x, name, pixel_stride(x), 1, written, layout);
      case InputShape::matrix:
        return place_matrix(x, name, written, layout);
    }
  }

  /// What is reduced is one value for all of D, a line of its channels (filters), or a plane of its pixels (taps).
  OutputShape shape_of(InputShape shape) const {
    const int axis = line_axis();
    if (shape == InputShape::scalar) return {};
    if (shape == line_shape()) return {{call_.shape[axis]}, 1};
    OutputShape made{call_.shape, call_.ndim};
    if (shape != InputShape::matrix) made.sizes[axis] = 1;
    return made;
  }

  EpilogueLayout new_layout(InputShape shape, DType dtype) const {
    const bool is_filter = p_.conv.kind == Conv::wgrad;
    if (shape != InputShape::matrix) {
      EpilogueLayout layout{.shape = shape, .dtype = dtype, .alignment = uint8_t(size_of(dtype))};
      if (shape == line_shape()) {
        layout.stride = call_.shape[line_axis()] > 1 ? 1 : 0;
        layout.stride_batch = by_group((is_filter ? p_.m : p_.n) * layout.stride);
      } else if (shape != InputShape::scalar) {
        layout.stride = 1;
      }
      return layout;
    }
    const int64_t stride = is_filter ? p_.n : call_.shape[1];
    return {
        .dtype = dtype, .alignment = 16, .stride = stride, .stride_batch = by_group(is_filter ? p_.m * stride : p_.n)};
  }

 private:
  /// Inputs and reductions that are a line: D's channels, or its filters; the others are planes.
  InputShape line_shape() const { return p_.conv.kind == Conv::wgrad ? InputShape::column : InputShape::row; }
  int line_axis() const { return p_.conv.kind == Conv::wgrad ? 0 : 1; }

  /// A distance from one group of channels, or of filters, to the next.
  int64_t by_group(int64_t distance) const { return p_.batch > 1 ? distance : 0; }

  bool has_shape(const Operand& x, const Extents& shape) const {
    return x.ndim == call_.ndim && std::equal(x.shape, x.shape + x.ndim, shape.begin());
  }

  /// Values along dimension `axis` of D, of which a group has `own`: as a line, or as broadcasting writes it, with
  /// ones around.
  void place_line(const Operand& x, const char* name, int64_t own, int axis, EpilogueLayout& layout) const {
    const int at = x.ndim == 1 ? 0 : axis - (call_.ndim - x.ndim);
    bool fits = x.ndim > 0 && x.ndim <= call_.ndim && at >= 0 && x.shape[at] == call_.shape[axis];
    for (int i = 0; i < x.ndim; ++i) fits = fits && (i == at || x.shape[i] == 1);
    if (!fits) refuse_shape(x, name, layout.shape);
    layout.stride = call_.shape[axis] > 1 ? x.stride[at] : 0;
    layout.stride_batch = by_group(own * layout.stride);
  }

  /// Values that D's lines along `axis` share, or in which its filters are alike: equally far apart, in the order of
  /// memory.
  void place_plane(const Operand& x, const char* name, std::optional<int64_t> stride, int axis, bool written,
                   EpilogueLayout& layout) const {
    Extents shape = call_.shape;
    shape[axis] = 1;
    if (!has_shape(x, shape)) refuse_shape(x, name, layout.shape);
    if (!stride) refuse_order(x, name, written);
    layout.stride = axis == 0 ? 1 : *stride;
  }

  void place_matrix(const Operand& x, const char* name, bool written, EpilogueLayout& layout) const {
    if (!has_shape(x, call_.shape)) refuse_shape(x, name, InputShape::matrix);
    const bool is_filter = p_.conv.kind == Conv::wgrad;
    const auto stride = is_filter ? filter_stride(x) : pixel_stride(x);
    if (!stride) refuse_order(x, name, written);
    layout.alignment = uint8_t(alignment_of(x.data));
    layout.stride = *stride;
    layout.stride_batch = by_group(is_filter ? p_.m * *stride : p_.n);
  }

  [[noreturn]] void refuse_order(const Operand& x, const char* name, bool written) const {
    refuse_value("{} is {} with strides ({}), but it must lie in memory as D does, channels last. Pass {}", name,
                 shape_text(x), fmt::join(x.stride, x.stride + x.ndim, ", "),
                 channels_last_remedy(name, call_.ndim - 2, written));
  }

  [[noreturn]] void refuse_shape(const Operand& x, const char* name, InputShape shape) const {
    const bool is_filter = p_.conv.kind == Conv::wgrad;
    const auto text = [&](const Extents& extents) {
      return fmt::format("({})", fmt::join(extents.begin(), extents.begin() + call_.ndim, ", "));
    };
    Extents plane = call_.shape, line{};
    plane[is_filter ? 0 : 1] = 1;
    line.fill(1);
    line[is_filter ? 0 : 1] = call_.shape[is_filter ? 0 : 1];
    const std::string of_line = fmt::format("({},) or {}", call_.shape[is_filter ? 0 : 1], text(line));
    std::string expected, what;
    switch (shape) {
      case InputShape::scalar:
        expected = "()", what = detail::meaning(shape);
        break;
      case InputShape::row:
        expected = is_filter ? text(plane) : of_line;
        what = is_filter ? "one value per tap and channel of D" : "one value per channel of D";
        break;
      case InputShape::column:
        expected = is_filter ? of_line : text(plane);
        what = is_filter ? "one value per filter of D" : "one value per pixel of D";
        break;
      case InputShape::matrix:
        expected = text(call_.shape), what = detail::meaning(shape);
        break;
    }
    refuse_value("{} is {}; it must be {}: {}", name, shape_text(x), expected, what);
  }

  const ConvCall& call_;
  const GemmProblem& p_;
};

}  // namespace

void place_epilogue(const EpilogueTensors& tensors, ConvCall& call) {
  detail::place_epilogue(tensors, ConvPlacer(call), call);
}

}  // namespace cleave
