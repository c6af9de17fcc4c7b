// The rules of convolutions.

#include <fmt/ranges.h>

#include "cleave/conv/conv_classes.h"
#include "cleave/names.h"
#include "launch/conv_grid.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {
namespace {

/// The most pixels of an axis, and images: 2^30 is then outside any of them, wherever a tap leads (gather.h,
/// im2col_loader.h).
constexpr int64_t kMostPixels = int64_t(1) << 29;

/// The rules of one axis, called `name`.
class AxisRules {
 public:
  AxisRules(const ConvAxis& axis, const char* name, Messages& out) : axis_(axis), name_(name), out_(out) {}

  void check() const {
    const size_t before = out_.size();
    check_least("size of the image", axis_.size, 0);
    check_least("size of the filter", axis_.filter, 1);
    check_least("stride", axis_.stride, 1);
    check_least("dilation", axis_.dilation, 1);
    check_least("padding before the image", axis_.pad_begin, 0);
    check_least("padding after the image", axis_.pad_end, 0);
    if (out_.size() != before) return;
    check_span("image with its padding", padded(), "padding");
    check_span("filter with its dilation", span(), "dilation");
    if (out_.size() == before) check_outputs();
  }

 private:
  int64_t padded() const { return int64_t(axis_.size) + axis_.pad_begin + axis_.pad_end; }
  int64_t span() const { return (int64_t(axis_.filter) - 1) * axis_.dilation + 1; }

  void check_least(const char* what, int32_t value, int32_t least) const {
    if (value >= least) return;
    out_.add("the {} along the {} is {}; pass {} or more", what, name_, value, least);
  }

  void check_span(const char* what, int64_t pixels, const char* remedy) const {
    if (pixels <= kMostPixels) return;
    out_.add("the {} spans {} pixels along the {}; at most 2^29 are served. Pass less {}", what, pixels, name_, remedy);
  }

  /// An image without pixels has no outputs, or some that only the padding makes.
  void check_outputs() const {
    if (axis_.size == 0 || outputs(axis_) > 0) return;
    out_.add(
        "the output is of size zero: along the {} the filter spans {} pixels ({} taps, dilation {}), but the image has "
        "{} with its padding ({} + {} + {}). Pass a larger image, more padding or a smaller filter",
        name_, span(), axis_.filter, axis_.dilation, padded(), axis_.pad_begin, axis_.size, axis_.pad_end);
  }

  const ConvAxis& axis_;
  const char* name_;
  Messages& out_;
};

/// One of the numbers that a kernel counts in 31 bits, or fewer.
void check_count(const char* what, int64_t count, const char* remedy, Messages& out, int64_t most = kMaxSize) {
  if (count >= 0 && count <= most) return;
  const bool known = count < std::numeric_limits<int64_t>::max();
  out.add("the convolution has {} {}; it must be from 0 to {}. {}", known ? std::to_string(count) : "2^63 or more",
          what, most == kMaxSize ? "2^31 - 1" : "2^29", remedy);
}

void check_counts(const ConvLayout& conv, Messages& out) {
  const size_t before = out.size();
  check_count("images", conv.images, "Split the batch", out, kMostPixels);
  check_count("channels in a group", conv.channels, "Pass another number", out);
  check_count("filters in a group", conv.filters, "Pass another number", out);
  if (out.size() != before) return;
  check_count("pixels in its images", image_pixels(conv), "Split the batch", out);
  check_count("pixels in its outputs", output_pixels(conv), "Split the batch", out);
  const auto [m, n, k] = product_sizes(conv);
  check_count(conv.kind == Conv::dgrad ? "taps x filters" : "taps x channels", conv.kind == Conv::wgrad ? n : k,
              "Split the sum over them", out);
}

void check_class_count(const ConvLayout& conv, Messages& out) {
  if (conv.kind != Conv::dgrad) return;
  constexpr uint32_t kMost = 1 << 16;  // in a thousand launches
  const auto& [depth, height, width] = conv.axes;
  double classes = 1;
  for (const ConvAxis& axis : conv.axes) classes *= min_of(axis.stride, axis.size);
  if (classes <= kMost) return;
  out.add(
      "the strides are {} x {} x {}, and dgrad has a class of pixels for each of so many residues; at most {} are "
      "served. Pass smaller strides",
      depth.stride, height.stride, width.stride, kMost);
}

void check_extents(const GemmProblem& p, Messages& out) {
  const auto [m, n, k] = product_sizes(p.conv);
  if (p.m == m && p.n == n && p.k == k) return;
  out.add("m, n and k are {}, {} and {}, but those of this {} are {}, {} and {}; make the problem with implicit_gemm",
          p.m, p.n, p.k, to_string(p.conv.kind), m, n, k);
}

/// Channels lie side by side, and in a filter all taps.
void check_lines(const GemmProblem& p, Messages& out) {
  const auto check = [&](const char* argument, const char* what, int64_t stride, int64_t size) {
    if (size <= 1 || stride == 1) return;
    out.add("{0}'s {1} are {2} elements apart; they must be neighbours. Pass {0} in channels_last (NHWC, KRSC)",
            argument, what, stride);
  };
  const bool wgrad = p.conv.kind == Conv::wgrad;
  const Placement a = a_of(p), b = b_of(p);
  if (!a.empty()) {
    check("a", "channels", wgrad ? a.layout.stride_row : a.layout.stride_col, wgrad ? a.rows : a.columns);
  }
  if (!b.empty()) {
    const bool fprop = p.conv.kind == Conv::fprop;
    check("b", wgrad ? "channels" : "taps and channels", fprop ? b.layout.stride_row : b.layout.stride_col,
          fprop ? b.rows : b.columns);
  }
  if (d_of(p).empty()) return;
  check("d", "channels", p.d.stride_col, p.n);
  if (p.has_c) check("c", "channels", p.c.stride_col, p.n);
}

/// What belongs to other products.
void check_company(const GemmProblem& p, Messages& out) {
  std::vector<const char*> given;
  const bool forward = p.conv.kind == Conv::fprop;
  if (p.scale_a.kind != Scaling::none && !forward) given.push_back("scale_a");
  if (p.scale_b.kind != Scaling::none && !forward) given.push_back("scale_b");
  if (p.has_zero) given.push_back("azp_adj");
  if (p.has_scale_d && !forward) given.push_back("scale_d");
  if (p.has_amax && !forward) given.push_back("amax");
  if (p.groups.dimension != Grouping::none) given.push_back("groups");
  const bool is_function = activation_of(p) == Activation::none;
  if (p.epilogue.gates == Gates::halves) given.push_back(is_function ? "acc.gate and acc.up" : "swiglu");
  if (p.epilogue.gates == Gates::interleaved)
    given.push_back(is_function ? "acc.even and acc.odd" : "swiglu_interleaved");
  if (!given.empty()) {
    out.add("{} has no {}; leave that out", forward ? "a convolution" : "a gradient of a convolution",
            fmt::join(given, ", "));
  }
}

/// A pixel meets many outputs, so that only one scale for all of them can be taken out of the sums.
void check_scales(const GemmProblem& p, Messages& out) {
  for (const auto& [name, scales] : {std::pair("scale_a", p.scale_a), std::pair("scale_b", p.scale_b)}) {
    if (scales.kind == Scaling::block)
      out.add("{} is of blocks; a convolution has one scale of a, and one or a vector of b. Pass those", name);
  }
  if (p.scale_a.kind == Scaling::vector && (p.scale_a.stride_row != 0 || p.scale_a.stride_batch != 0))
    out.add("scale_a is a vector; a convolution has one scale for all of a. Pass strides of 0");
}

void check_bias(const GemmProblem& p, Messages& out) {
  if (p.bias == Bias::none) return;
  if (p.conv.kind == Conv::wgrad) {
    out.add("bias is given, but wgrad has none; leave it out");
  } else if (p.bias != Bias::row) {
    out.add("bias is a {}; that of a convolution must be a row, with a value for each channel of d", to_string(p.bias));
  }
}

}  // namespace

bool check_geometry(const ConvLayout& conv, Messages& out) {
  const size_t before = out.size();
  if (conv.kind == Conv::none) {
    if (conv == ConvLayout{}) return true;
    out.add("conv describes no kind of convolution; set conv.kind, or leave all out");
    return false;
  }
  constexpr const char* kNames[kConvAxes] = {"depth", "height", "width"};
  for (uint32_t i = 0; i < kConvAxes; ++i) AxisRules(conv.axes[i], kNames[i], out).check();
  if (out.size() == before) check_counts(conv, out);
  if (out.size() == before) check_class_count(conv, out);
  return out.size() == before;
}

void check_conv(const GemmProblem& p, Messages& out) {
  if (p.conv.kind == Conv::none) return;
  check_extents(p, out);
  check_lines(p, out);
  check_company(p, out);
  check_scales(p, out);
  check_bias(p, out);
}

}  // namespace cleave
