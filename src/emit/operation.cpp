#include "emit/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/refuse.h"
#include "cleave/names.h"
#include "cleave/schedule/groups.h"
#include "emit/parts.h"
#include "jit/source.h"
#include "plan/plans/reduce_kernel.h"
#include "problem/problem.h"

namespace cleave {
namespace {

const char* bounds_text(GroupBounds bounds) {
  switch (bounds) {
    case GroupBounds::ends:
      return "from offsets[g - 1], or 0, to offsets[g]";
    case GroupBounds::indptr:
      return "from offsets[g] to offsets[g + 1]";
    case GroupBounds::starts:
      return "from offsets[g], sizes[g] long";
    case GroupBounds::aligned_ends:
      return "from offsets[g - 1], or 0, rounded up to spacing, to offsets[g]";
    case GroupBounds::counts:
      return "from g * spacing, sizes[g] long";
  }
  return "";
}

std::string product_of(const GemmProblem& p) {
  const bool scaled = p.scale_a.kind != Scaling::none;
  switch (p.conv.kind) {
    case Conv::none:
      break;
    case Conv::fprop:
      return scaled ? "scale_a * scale_b * conv(X, W)" : "conv(X, W)";
    case Conv::dgrad:
      return "conv_dgrad(W, Y)";
    case Conv::wgrad:
      return "conv_wgrad(X, Y)";
  }
  if (p.weights_b.format == WeightFormat::nvfp4) return "global_scale * (A @ B)";
  if (p.has_zero) return fmt::format("{}(A @ B - zero_a * zero_b)", scaled ? "scale_a * scale_b * " : "");
  if (!scaled) return "A @ B";
  return scaled_operands(p) > 1 ? "(scale_a * A) @ (scale_b * B)" : "(scale_a * A) @ B";
}

std::string formula(const GemmProblem& p) {
  std::string text = "alpha * " + product_of(p);
  if (p.has_c) text += " + beta * C";
  if (p.bias != Bias::none) text += " + bias";
  if (p.epilogue.function != nullptr) text = function_formula(*p.epilogue.function, text);
  if (p.has_scale_d) text = fmt::format("({}) / scale_d", text);
  return text;
}

std::string summary(const GemmProblem& p) {
  std::string text = p.groups.dimension != Grouping::none ? "Grouped products" : "Products";
  text += fmt::format(" of {}", to_string(p.a.dtype));
  if (p.b.dtype != p.a.dtype) text += fmt::format(" and {}", to_string(p.b.dtype));
  text += " matrices" + multiplied_as(p);
  if (p.scale_a.kind == Scaling::vector) text += " with scales";
  if (p.scale_a.kind == Scaling::block) text += " with scales of blocks";
  if (p.weights_b.format != WeightFormat::none) text += fmt::format(" and {} weights", to_string(p.weights_b.format));
  return text + ".";
}

void describe_epilogue(const GemmProblem& p, Vocabulary& v) {
  const Grouping grouped = p.groups.dimension;
  v.words["formula"] = formula(p);
  v.words["activation"] = to_string(activation_of(p));
  v.words["bias"] = to_string(p.bias);
  const DType bias_type = p.bias == Bias::none ? p.d.dtype : p.bias_dtype;
  v.words["bias_dtype"] = to_string(bias_type);
  v.flags["gated"] = is_gated(p);
  v.flags["has_c"] = p.has_c;
  v.flags["has_bias"] = p.bias != Bias::none;
  v.flags["bias_row"] = p.bias == Bias::row;
  v.flags["bias_column"] = p.bias == Bias::column;
  v.flags["bias_batched"] =
      (p.bias == Bias::row && grouped != Grouping::n) || (p.bias == Bias::column && grouped != Grouping::m);
  v.flags["has_zero"] = p.has_zero;
  v.flags["has_scale_d"] = p.has_scale_d;
  v.flags["has_amax"] = p.has_amax;
}

void describe_groups(const GemmProblem& p, int64_t step, Vocabulary& v) {
  const GroupLayout& groups = p.groups;
  const bool grouped = groups.dimension != Grouping::none;
  const bool counts = groups.bounds == GroupBounds::counts;
  v.words["grouping"] = to_string(groups.dimension);
  v.words["bounds"] = to_string(groups.bounds);
  v.words["bounds_text"] = bounds_text(groups.bounds);
  v.words["index_dtype"] = groups.wide ? "int64" : "int32";
  v.words["index_type"] = v.words["index_dtype"] + "_t";
  v.words["spacing"] = std::to_string(groups.spacing);
  v.words["spacing_step"] = std::to_string(step);
  v.words["zero_rest"] = spell(groups.zero_rest);
  v.flags["grouped"] = grouped;
  for (const Grouping dimension : {Grouping::m, Grouping::n, Grouping::k})
    v.flags[fmt::format("grouped_{}", to_string(dimension))] = groups.dimension == dimension;
  v.flags["has_offsets"] = grouped && !counts;
  v.flags["has_sizes"] = grouped && (counts || groups.bounds == GroupBounds::starts);
  v.flags["has_spacing"] = grouped && is_spaced(groups.bounds);
}

void describe_kernels(const std::vector<ArchChoice>& choices, Vocabulary& v) {
  std::vector<std::string> archs, kernels, gencodes, cmake_archs;
  describe_archs(choices, v);
  for (const ArchChoice& choice : choices) {
    const std::string number = choice.arch.substr(3);
    if (choice.of_rest) {
      kernels.push_back(fmt::format("{} for the rows of B beside its whole waves", to_string(choice.choice.spec)));
      continue;
    }
    archs.push_back(choice.arch);
    kernels.push_back(fmt::format("{} on {}", to_string(choice.choice.spec), choice.arch));
    gencodes.push_back(fmt::format("--generate-code=arch=compute_{0},code=[sm_{0}]", number));
    cmake_archs.push_back(number + "-real");
  }
  v.words["archs"] = fmt::format("{}", fmt::join(archs, ", "));
  v.words["gencode"] = fmt::format("{}", fmt::join(gencodes, " "));
  v.words["gencode_list"] = fmt::format("{}", fmt::join(gencodes, "\", \""));
  v.words["cmake_archs"] = fmt::format("{}", fmt::join(cmake_archs, ";"));
  v.words["kernel_description"] = fmt::format("{}", fmt::join(kernels, ", "));
  v.words["entry"] = gemm_entry;
  v.words["reduce_entry"] = reduce_entry;
}

void describe_product(const GemmProblem& p, const std::vector<ArchChoice>& choices, Vocabulary& v) {
  const Layouts layouts = layouts_of(choices.front().choice);
  for (const ArchChoice& choice : choices) {
    if (layouts_of(choice.choice) == layouts) continue;
    refuse(ErrorCode::unsupported,
           "the kernels of {} and {} read different layouts, since m, n or k is 1; plan with larger sizes, or emit one "
           "architecture",
           choices.front().arch, choice.arch);
  }
  describe_matrices(p, layouts, v);
  describe_weight(p, v);
  describe_scales(p, v);
  describe_groups(p, spacing_step(p, choices), v);
  v.words["class"] = "Gemm";
  v.words["op"] = "gemm";
  v.words["result"] = "D";
  v.words["summary"] = summary(p);
  v.words["planned_m"] = std::to_string(p.m);
  v.words["planned_n"] = std::to_string(p.n);
  v.words["planned_k"] = std::to_string(p.k);
  v.words["planned_batch"] = std::to_string(p.batch);
  v.words["planned"] =
      fmt::format("m = {}, n = {}, k = {}, {} = {}", p.m, p.n, p.k, v.flags["grouped"] ? "groups" : "batch", p.batch);
}

}  // namespace

std::string multiplied_as(const GemmProblem& p) {
  if (p.a.dtype != DType::f32) return "";
  if (in_parts(p.precision)) return fmt::format(", multiplied in two parts each ({})", to_string(p.precision));
  return p.precision == Precision::ieee ? ", multiplied as they are" : ", rounded to tf32";
}

Vocabulary describe(const GemmProblem& p, const std::vector<ArchChoice>& choices) {
  Vocabulary v;
  describe_kernels(choices, v);
  describe_epilogue(p, v);
  describe_function(p, v);
  const bool floats = size_of(p.a.dtype) > 1;
  v.flags["differentiable"] = floats && size_of(p.d.dtype) > 1 && !p.has_amax && p.groups.dimension == Grouping::none &&
                              p.weights_b.format == WeightFormat::none;
  v.flags["convolution"] = p.conv.kind != Conv::none;
  v.flags["dgrad"] = p.conv.kind == Conv::dgrad;
  v.flags["wgrad"] = p.conv.kind == Conv::wgrad;
  if (p.conv.kind != Conv::none)
    describe_convolution(p, v);
  else
    describe_product(p, choices, v);
  v.words["problem"] = print_operation(p);
  describe_signature(p, v);
  v.words["precision"] = to_string(p.precision);
  for (const auto& [flag, value] : v.flags) v.words.emplace(flag, value ? "True" : "False");
  return v;
}

}  // namespace cleave
