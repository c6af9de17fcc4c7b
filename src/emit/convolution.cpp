// What a convolution's tensors are, and what is fixed of its geometry.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cleave/conv.h"
#include "cleave/names.h"
#include "emit/parts.h"

namespace cleave {
namespace {

struct NamedAxis {
  const char* name;     // of the images, as an argument
  const char* outputs;  // of the outputs, in comments
  ConvAxis axis;
};

std::vector<NamedAxis> axes_of(const ConvLayout& conv) {
  std::vector<NamedAxis> axes = {{"height", "p", conv.axes[1]}, {"width", "q", conv.axes[2]}};
  if (conv.axes[0] != ConvAxis{}) axes.insert(axes.begin(), {"depth", "o", conv.axes[0]});
  return axes;
}

/// What `part` says of every axis, with `between` it.
template <class Part>
std::string join(const std::vector<NamedAxis>& axes, const char* between, const Part& part) {
  std::vector<std::string> parts;
  for (const NamedAxis& axis : axes) parts.push_back(fmt::format("{}", part(axis)));
  return fmt::format("{}", fmt::join(parts, between));
}

std::string padding(const NamedAxis& of) {
  const auto [begin, end] = std::pair(of.axis.pad_begin, of.axis.pad_end);
  return begin == end ? std::to_string(begin) : fmt::format("({}, {})", begin, end);
}

std::string initialiser(const ConvAxis& axis) {
  return fmt::format("{{.taps = {}, .stride = {}, .pad_begin = {}, .pad_end = {}, .dilation = {}}}", axis.filter,
                     axis.stride, axis.pad_begin, axis.pad_end, axis.dilation);
}

struct Roles {
  const char *result, *op, *what;
};

Roles roles_of(Conv kind) {
  switch (kind) {
    case Conv::dgrad:
      return {"X", "conv_dgrad", "Images' gradients of convolutions"};
    case Conv::wgrad:
      return {"W", "conv_wgrad", "Filters' gradients of convolutions"};
    default:
      return {"Y", "conv", "Convolutions"};
  }
}

}  // namespace

void describe_convolution(const GemmProblem& p, Vocabulary& v) {
  const ConvLayout& conv = p.conv;
  const Roles roles = roles_of(conv.kind);
  const auto axes = axes_of(conv);
  for (const char* const name : {"X", "W", "Y"}) {
    const bool made = std::string_view(name) == roles.result;
    const std::string small(1, char(std::tolower(*name)));
    const bool filters = *name == 'W';
    v.words[small + "_dtype"] = to_string(made ? p.d.dtype : filters ? p.b.dtype : p.a.dtype);
    v.words[small + "_pointer"] = made ? "void*" : "const void*";
  }
  v.words["result"] = roles.result;
  v.words["d_dtype"] = to_string(p.d.dtype);
  v.words["c_dtype"] = to_string(p.has_c ? p.c.dtype : p.d.dtype);
  v.words["class"] = "Conv";
  v.words["op"] = roles.op;
  v.words["kind"] = to_string(conv.kind);
  v.flags["grouped"] = false;
  describe_scales(p, v);
  v.flags["deep"] = axes.size() == 3;

  const int64_t groups = p.batch;
  v.words["groups"] = std::to_string(groups);
  v.words["operand_dtype"] = to_string(p.a.dtype);
  v.words["weight_dtype"] = to_string(p.b.dtype);
  v.words["result_channels"] = std::to_string(groups * (conv.kind == Conv::fprop ? conv.filters : conv.channels));
  v.words["memory_format"] = axes.size() == 3 ? "channels_last_3d" : "channels_last";
  v.words["x_channels"] = std::to_string(groups * conv.channels);
  v.words["y_channels"] = std::to_string(groups * conv.filters);
  v.words["w_filters"] = v.words["y_channels"];
  v.words["w_channels"] = std::to_string(conv.channels);
  v.words["pixels_of_x"] = join(axes, ", ", [](const NamedAxis& x) { return x.name; });
  v.words["pixels_of_y"] = join(axes, ", ", [](const NamedAxis& x) { return x.outputs; });
  v.words["result_pixels"] = v.words[conv.kind == Conv::fprop ? "pixels_of_y" : "pixels_of_x"];
  v.words["filter_size"] = join(axes, ", ", [](const NamedAxis& x) { return x.axis.filter; });
  v.words["stride"] = join(axes, ", ", [](const NamedAxis& x) { return x.axis.stride; });
  v.words["dilation"] = join(axes, ", ", [](const NamedAxis& x) { return x.axis.dilation; });
  v.words["padding"] = join(axes, ", ", padding);
  v.words["padding_pairs"] =
      join(axes, ", ", [](const NamedAxis& x) { return fmt::format("({}, {})", x.axis.pad_begin, x.axis.pad_end); });
  v.words["geometry"] = fmt::format("Stride {}, padding {}, dilation {}, {} {}.", v.words["stride"], v.words["padding"],
                                    v.words["dilation"], groups, groups == 1 ? "group" : "groups");
  v.words["planned_images"] = std::to_string(conv.images);
  v.words["planned_size"] = join(axes, ", ", [](const NamedAxis& x) { return x.axis.size; });
  v.words["planned"] =
      fmt::format("{} images of {}", conv.images, join(axes, " x ", [](const NamedAxis& x) { return x.axis.size; }));
  for (const NamedAxis& axis : axes) {
    v.words[fmt::format("{}_axis", axis.name)] = initialiser(axis.axis);
  }
  v.words["summary"] = fmt::format(
      "{} with filters of {}, {}{}{}.", roles.what, join(axes, " x ", [](const NamedAxis& x) { return x.axis.filter; }),
      to_string(p.a.dtype), multiplied_as(p), p.scale_a.kind != Scaling::none ? " with scales" : "");
}

}  // namespace cleave
