#include "problem/arguments.h"

#include <fmt/format.h>

#include "cleave/names.h"
#include "launch/limits.h"
#include "problem/overlap.h"

namespace cleave {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

/// Something that a launch writes.
struct Output {
  const char* name;
  Placement place;
  const void* data;

  void check_apart(const char* other, const Placement& other_place, const void* other_data,
                   const char* unless = "") const {
    if (!may_overlap(place, data, other_place, other_data)) return;
    refuse(fmt::format("{0} overlaps {1} in memory{2}; pass {0} of its own or a copy of {1}", name, other, unless));
  }
};

/// Their alignment is their type's, not the plan's.
void check_group_bounds(const char* name, size_t size, const void* data) {
  if (reinterpret_cast<uintptr_t>(data) % size == 0) return;
  refuse(fmt::format("{} is at {}, which is not a multiple of the {} bytes of an int{}; align it", name, data, size,
                     8 * size));
}

/// Something that a launch reads.
struct Input {
  const char* name;
  Placement place;
  const void* data;
  bool bounds = false;  // of groups
};

/// use(input) for each but C.
template <class Use>
void for_each_input(const GemmProblem& p, const GemmArguments& arguments, const Use& use) {
  const auto visit = [&](const Input& input) {
    if (!input.place.empty()) use(input);
  };
  visit({"a", a_of(p), arguments.a});
  visit({"b", b_of(p), arguments.b});
  visit({"bias", bias_of(p), arguments.bias});
  visit({"scale_a", scale_a_of(p), arguments.scale_a});
  visit({"scale_b", scale_b_of(p), arguments.scale_b});
  if (arguments.zero_a != nullptr) visit({"zero_a", zero_a_of(p), arguments.zero_a});
  visit({"zero_b", zero_b_of(p), arguments.zero_b});
  visit({"scale_d", scale_d_of(p), arguments.scale_d});
  visit({"group_offsets", group_offsets_of(p), arguments.group_offsets, true});
  visit({"group_sizes", group_sizes_of(p), arguments.group_sizes, true});
}

bool reads_c(const GemmProblem& p, const GemmArguments& arguments) {
  return p.has_c && arguments.beta != 0.0f;
}

}  // namespace

void check_pointer(const char* name, const MatrixLayout& layout, const void* data) {
  if (data == nullptr) {
    refuse(fmt::format("{} is a null pointer, but the problem reads or writes it; pass its data", name));
  }
  if (reinterpret_cast<uintptr_t>(data) % layout.alignment == 0) return;
  if (layout.alignment == size_of(layout.dtype)) {
    refuse(fmt::format("{} is at {}, which is not a multiple of the {} bytes of a {}; align it", name, data,
                       layout.alignment, to_string(layout.dtype)));
  }
  refuse(
      fmt::format("{0} is at {1}, which is not a multiple of the {2} bytes that the plan was made "
                  "for; plan with {0}.alignment of this pointer",
                  name, data, layout.alignment));
}

void check_arguments(const GemmProblem& p, const GemmArguments& arguments) {
  const Output d{"d", d_of(p), arguments.d}, amax{"amax", amax_of(p), arguments.amax};
  if (d.place.empty()) return;
  check_pointer(d.name, d.place.layout, d.data);
  if (p.has_amax) check_pointer(amax.name, amax.place.layout, amax.data);
  amax.check_apart("d", d.place, d.data);

  for_each_input(p, arguments, [&](const Input& x) {
    if (x.bounds) check_group_bounds(x.name, x.place.layout.alignment, x.data);
    check_pointer(x.name, x.place.layout, x.data);
    d.check_apart(x.name, x.place, x.data);
    amax.check_apart(x.name, x.place, x.data);
  });

  if (const std::string fault = find_factor_fault(p, arguments); !fault.empty()) refuse(fault);

  if (!reads_c(p, arguments)) return;
  const Placement c = c_of(p);
  check_pointer("c", c.layout, arguments.c);
  amax.check_apart("c", c, arguments.c);
  const bool same = arguments.c == arguments.d && p.c.dtype == p.d.dtype &&
                    (p.m == 1 || p.c.stride_row == p.d.stride_row) && (p.n == 1 || p.c.stride_col == p.d.stride_col) &&
                    (d.place.batch == 1 || p.c.stride_batch == p.d.stride_batch);
  if (!same) d.check_apart("c", c, arguments.c, " without being c exactly");
}

void check_workspace(const void* workspace, size_t size, size_t needed) {
  if (size < needed) {
    refuse(
        fmt::format("workspace has {} bytes, but the plan needs {} (its workspace_size); pass as "
                    "many, or no workspace to use a pooled one",
                    size, needed));
  }
  if (needed != 0 && reinterpret_cast<uintptr_t>(workspace) % 16 != 0) {
    refuse(fmt::format("workspace is at {}, which is not a multiple of 16 bytes; align it", workspace));
  }
}

void check_workspace_apart(const GemmProblem& p, const GemmArguments& arguments, const void* workspace, size_t needed) {
  if (needed == 0) return;
  const int64_t bytes = int64_t(needed);
  const MatrixLayout line{.dtype = DType::i8, .stride_row = bytes, .alignment = 1};
  const Output output{"workspace", {line, 1, bytes, 1}, workspace};
  for_each_input(p, arguments, [&](const Input& x) { output.check_apart(x.name, x.place, x.data); });
  if (reads_c(p, arguments)) output.check_apart("c", c_of(p), arguments.c);
  output.check_apart("d", d_of(p), arguments.d);
  if (p.has_amax) output.check_apart("amax", amax_of(p), arguments.amax);
}

}  // namespace cleave
