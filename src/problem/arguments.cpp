#include "problem/arguments.h"

#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "launch/limits.h"
#include "problem/overlap.h"

namespace cleave {
namespace {

void check_pointer(const NamedOperand& operand) {
  const MatrixLayout& layout = operand.place.layout;
  if (operand.data == nullptr) {
    refuse_value("{} is a null pointer, but the problem reads or writes it; pass its data", operand.name);
  }
  if (reinterpret_cast<uintptr_t>(operand.data) % layout.alignment == 0) return;
  if (operand.wide || layout.alignment == size_of(layout.dtype)) {
    const std::string_view type = operand.wide ? "int64" : to_string(layout.dtype);
    refuse_value("{} is at {}, which is not a multiple of the {} bytes of {} {}; align it", operand.name, operand.data,
                 layout.alignment, type.starts_with('i') ? "an" : "a", type);
  }
  refuse_value(
      "{0} is at {1}, which is not a multiple of the {2} bytes that the plan was made for; plan with {0}.alignment of "
      "this pointer",
      operand.name, operand.data, layout.alignment);
}

void check_apart(const NamedOperand& written, const NamedOperand& other, const char* unless = "") {
  if (!may_overlap(written.place, written.data, other.place, other.data)) return;
  refuse_value("{0} overlaps {1} in memory{2}; pass {0} of its own or a copy of {1}", written.name, other.name, unless);
}

/// Whether both are the same elements, each at the same place.
bool is_same(const NamedOperand& x, const NamedOperand& y) {
  const Placement &a = x.place, &b = y.place;
  return x.data == y.data && a.layout.dtype == b.layout.dtype && a.rows == b.rows && a.columns == b.columns &&
         a.batch == b.batch && (a.rows == 1 || a.layout.stride_row == b.layout.stride_row) &&
         (a.columns == 1 || a.layout.stride_col == b.layout.stride_col) &&
         (a.batch == 1 || a.layout.stride_batch == b.layout.stride_batch);
}

/// use(input) for each but C.
template <class Use>
void for_each_input(const GemmProblem& p, const GemmArguments& x, const Use& use) {
  const auto visit = [&](const NamedOperand& input) {
    if (!input.place.empty()) use(input);
  };
  visit({"a", a_of(p), x.a});
  visit({"b", b_of(p), x.b});
  visit({"bias", bias_of(p), x.bias});
  visit({"scale_a", scale_a_of(p), x.scale_a});
  visit({"scale_b", scale_b_of(p), x.scale_b});
  visit({"scale", weight_scale_of(p), x.weight_scale});
  visit({"zero", weight_zero_of(p), x.weight_zero});
  if (x.zero_a != nullptr) visit({"zero_a", zero_a_of(p), x.zero_a});
  visit({"zero_b", zero_b_of(p), x.zero_b});
  visit({"scale_d", scale_d_of(p), x.scale_d});
  if (p.epilogue.function != nullptr) {
    const auto& inputs = p.epilogue.function->inputs();
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      const void* const data = x.epilogue_inputs[i].data;
      if (data != nullptr || inputs[i].shape != InputShape::scalar)
        visit({.name = inputs[i].name.c_str(), .place = epilogue_input_of(p, i), .data = data, .elementwise = true});
    }
  }
  visit({"gather", gather_of(p), x.gather});
  visit({"group_offsets", group_offsets_of(p), x.group_offsets, false, p.groups.wide});
  visit({"group_sizes", group_sizes_of(p), x.group_sizes, false, p.groups.wide});
}

bool reads_c(const GemmProblem& p, const GemmArguments& x) {
  return p.has_c && x.beta != 0.0f;
}

}  // namespace

void check_operands(std::span<const NamedOperand> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const NamedOperand& operand = operands[i];
    if (operand.place.empty()) continue;
    check_pointer(operand);
    for (const NamedOperand& other : operands.first(i)) {
      if (!operand.written && !other.written) continue;
      const bool may_be_same = operand.elementwise && other.elementwise && operand.written != other.written;
      if (may_be_same && is_same(operand, other)) continue;
      check_apart(other.written ? other : operand, other.written ? operand : other);
    }
  }
}

namespace {

/// Outputs beside D share memory with nothing.
void check_epilogue_outputs(const GemmProblem& p, const GemmArguments& x) {
  if (p.epilogue.function == nullptr) return;
  const auto output = [&](uint32_t i) {
    return NamedOperand{p.epilogue.function->outputs()[i + 1].name.c_str(), epilogue_output_of(p, i),
                        x.epilogue_outputs[i], true};
  };
  for (uint32_t i = 0; i + 1 < p.epilogue.function->outputs().size(); ++i) {
    const NamedOperand own = output(i);
    check_pointer(own);
    check_apart(own, {"d", d_of(p), x.d});
    if (p.has_amax) check_apart(own, {"amax", amax_of(p), x.amax});
    check_apart(own, {"scale_out", scale_out_of(p), x.scale_out});
    if (reads_c(p, x)) check_apart(own, {"c", c_of(p), x.c});
    for_each_input(p, x, [&](const NamedOperand& input) { check_apart(own, input); });
    for (uint32_t other = 0; other < i; ++other) check_apart(own, output(other));
  }
}

}  // namespace

void check_arguments(const GemmProblem& p, const GemmArguments& arguments) {
  const NamedOperand d{"d", d_of(p), arguments.d, true}, amax{"amax", amax_of(p), arguments.amax, true};
  const NamedOperand scale_out{"scale_out", scale_out_of(p), arguments.scale_out, true};
  if (d.place.empty()) return;
  check_pointer(d);
  if (p.has_amax) check_pointer(amax);
  if (finds_scales(p)) check_pointer(scale_out);
  const auto check_others = [&, any = p.has_amax || finds_scales(p)](const NamedOperand& operand) {
    if (!any) return;
    check_apart(amax, operand);
    check_apart(scale_out, operand);
  };
  check_others(d);
  check_apart(scale_out, amax);
  for_each_input(p, arguments, [&](const NamedOperand& input) {
    check_pointer(input);
    if (!input.elementwise || !is_same(d, input)) check_apart(d, input);
    check_others(input);
  });
  check_epilogue_outputs(p, arguments);
  if (const std::string fault = find_factor_fault(p, arguments); !fault.empty()) refuse_value("{}", fault);

  if (!reads_c(p, arguments)) return;
  const NamedOperand c{"c", c_of(p), arguments.c};
  check_pointer(c);
  check_others(c);
  if (!is_same(c, d)) check_apart(d, c, " without being c exactly");
}

void check_workspace(const void* workspace, size_t size, size_t needed) {
  if (size < needed) {
    refuse_value(
        "workspace has {} bytes, but the plan needs {} (its workspace_size); pass as many, or no workspace to use a "
        "pooled one",
        size, needed);
  }
  if (needed != 0 && reinterpret_cast<uintptr_t>(workspace) % 16 != 0) {
    refuse_value("workspace is at {}, which is not a multiple of 16 bytes; align it", workspace);
  }
}

void check_workspace_apart(const GemmProblem& p, const GemmArguments& arguments, const void* workspace, size_t needed) {
  if (needed == 0) return;
  const int64_t bytes = int64_t(needed);
  const MatrixLayout line{.dtype = DType::i8, .stride_row = bytes, .alignment = 1};
  const NamedOperand output{"workspace", {line, 1, bytes, 1}, workspace};
  for_each_input(p, arguments, [&](const NamedOperand& input) { check_apart(output, input); });
  if (reads_c(p, arguments)) check_apart(output, {"c", c_of(p), arguments.c});
  check_apart(output, {"d", d_of(p), arguments.d});
  check_apart(output, {"amax", amax_of(p), arguments.amax});
  check_apart(output, {"scale_out", scale_out_of(p), arguments.scale_out});
  if (p.epilogue.function == nullptr) return;
  const auto& outputs = p.epilogue.function->outputs();
  for (uint32_t i = 0; i + 1 < outputs.size(); ++i)
    check_apart(output, {outputs[i + 1].name.c_str(), epilogue_output_of(p, i), arguments.epilogue_outputs[i]});
}

}  // namespace cleave
