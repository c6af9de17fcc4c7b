// The operation as a constant of C++.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>
#include <vector>

#include "cleave/conv.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "emit/parts.h"

namespace cleave {
namespace {

/// Lines ".member = value," of an initialiser, of what is not the default.
class Initialiser {
 public:
  template <class Value>
  void add(const char* member, const Value& value, const Value& by_default) {
    if (value == by_default) return;
    if constexpr (std::is_enum_v<Value> || std::is_same_v<Value, bool>)
      add(member, std::string(spell(value)));
    else
      add(member, std::to_string(value));
  }
  void add(const char* member, const std::string& value) { members_.push_back(fmt::format(".{} = {}", member, value)); }

  std::string in_braces(const char* between = ", ") const {
    return fmt::format("{{{}}}", fmt::join(members_, between));
  }
  std::string lines() const { return fmt::format("    {},", fmt::join(members_, ",\n    ")); }

 private:
  std::vector<std::string> members_;
};

/// Strides of products are those of a call.
std::string print(const MatrixLayout& layout, bool with_strides) {
  Initialiser text;
  text.add("dtype", spell(layout.dtype));
  if (with_strides) {
    text.add("stride_row", layout.stride_row, int64_t(0));
    text.add("stride_col", layout.stride_col, int64_t(1));
    text.add("stride_batch", layout.stride_batch, int64_t(0));
  }
  return text.in_braces();
}

std::string print(const ScaleLayout& layout, bool with_strides) {
  Initialiser text;
  text.add("kind", spell(layout.kind));
  text.add("rows", layout.rows, 1u);
  text.add("stride_row", layout.stride_row, int64_t(0));
  text.add("stride_k", layout.stride_k, int64_t(0));
  if (with_strides) text.add("stride_batch", layout.stride_batch, int64_t(0));
  return text.in_braces();
}

std::string print(const WeightLayout& layout) {
  Initialiser text;
  text.add("format", spell(layout.format));
  text.add("has_zero", layout.has_zero, false);
  text.add("group", layout.group, int64_t(0));
  return text.in_braces();
}

std::string print(const GroupLayout& layout) {
  Initialiser text;
  text.add("dimension", spell(layout.dimension));
  text.add("bounds", spell(layout.bounds));
  text.add("wide", layout.wide, false);
  text.add("spacing", layout.spacing, int64_t(1));
  text.add("zero_rest", layout.zero_rest, false);
  return text.in_braces();
}

/// As much of an operand as calls do not bring.
std::string print(const EpilogueLayout& layout) {
  Initialiser text;
  text.add("shape", spell(layout.shape));
  text.add("dtype", spell(layout.dtype));
  text.add("order", layout.order, Order::row);
  text.add("alignment", std::to_string(layout.alignment));
  return text.in_braces();
}

std::string print(const EpilogueProblem& epilogue) {
  const auto list = [](const EpilogueLayout* layouts, size_t count) {
    std::vector<std::string> entries;
    for (size_t i = 0; i < count; ++i) entries.push_back(print(layouts[i]));
    return fmt::format("{{{}}}", fmt::join(entries, ",\n                            "));
  };
  Initialiser text;
  text.add("function", "&kFunction");
  text.add("gates", epilogue.gates, Gates::none);
  text.add("inputs", list(epilogue.inputs, epilogue.function->inputs().size()));
  text.add("outputs", list(epilogue.outputs, epilogue.function->outputs().size() - 1));
  return text.in_braces(",\n                 ");
}

std::string print(const ConvAxis& axis) {
  Initialiser text;
  const ConvAxis none;
  text.add("size", axis.size, none.size);
  text.add("filter", axis.filter, none.filter);
  text.add("stride", axis.stride, none.stride);
  text.add("pad_begin", axis.pad_begin, none.pad_begin);
  text.add("pad_end", axis.pad_end, none.pad_end);
  text.add("dilation", axis.dilation, none.dilation);
  return text.in_braces();
}

std::string print(const ConvLayout& conv) {
  Initialiser text;
  text.add("kind", spell(conv.kind));
  text.add("images", conv.images, int64_t(0));
  text.add("channels", conv.channels, int64_t(0));
  text.add("filters", conv.filters, int64_t(0));
  const auto& [depth, height, width] = conv.axes;
  text.add("axes",
           fmt::format("{{{},\n             {},\n             {}}}", print(depth), print(height), print(width)));
  return text.in_braces();
}

}  // namespace

std::string print_operation(const GemmProblem& given) {
  const bool is_conv = given.conv.kind != Conv::none;
  GemmProblem p = given;
  if (is_conv) {
    // Filters without gaps, whatever those were that it was planned with.
    const GemmProblem packed = implicit_gemm(p.conv, p.batch, p.a.dtype, p.d.dtype);
    p.a = packed.a;
    p.b = packed.b;
    p.d = packed.d;
    p.c.stride_row = packed.c.stride_row;
    p.c.stride_batch = packed.c.stride_batch;
    p.bias_stride_batch = p.bias != Bias::none && p.batch > 1 ? p.d.stride_batch : 0;
  }
  Initialiser text;
  text.add("m", p.m, int64_t(0));
  text.add("n", p.n, int64_t(0));
  text.add("k", p.k, int64_t(0));
  text.add("batch", p.batch, int64_t(1));
  text.add("a", print(p.a, is_conv));
  text.add("b", print(p.b, is_conv));
  if (p.has_c) text.add("c", print(p.c, is_conv));
  text.add("d", print(p.d, is_conv));
  text.add("has_c", p.has_c, false);
  text.add("bias", p.bias, Bias::none);
  if (p.bias != Bias::none) text.add("bias_dtype", spell(p.bias_dtype));
  text.add("bias_stride_batch", p.bias_stride_batch, int64_t(0));
  if (p.epilogue.function != nullptr) text.add("epilogue", print(p.epilogue));
  if (p.scale_a.kind != Scaling::none) text.add("scale_a", print(p.scale_a, is_conv));
  if (p.scale_b.kind != Scaling::none) text.add("scale_b", print(p.scale_b, is_conv));
  if (p.weights_b.format != WeightFormat::none) text.add("weights_b", print(p.weights_b));
  text.add("has_zero", p.has_zero, false);
  text.add("has_scale_d", p.has_scale_d, false);
  text.add("has_amax", p.has_amax, false);
  if (p.a.dtype == DType::f32) text.add("precision", p.precision, Precision::tf32);
  if (p.groups.dimension != Grouping::none) text.add("groups", print(p.groups));
  if (is_conv) text.add("conv", print(p.conv));
  return text.lines();
}

}  // namespace cleave
