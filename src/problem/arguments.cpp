#include "problem/arguments.h"

#include <fmt/format.h>

#include "problem/overlap.h"

namespace cleave {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

void check_pointer(const char* name, const void* data, uint32_t alignment) {
  if (data == nullptr) {
    refuse(fmt::format("{} is a null pointer, but the problem reads or writes it; pass its data",
                       name));
  }
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    refuse(fmt::format(
        "{} is at {}, which is not a multiple of the {} bytes that the plan was made for; "
        "plan with {}.alignment of this pointer",
        name, data, alignment, name));
  }
}

}  // namespace

void check_arguments(const GemmProblem& p, const GemmArguments& arguments) {
  const Placement a{p.a, p.m, p.k, p.batch}, b{p.b, p.k, p.n, p.batch};
  const Placement c{p.c, p.m, p.n, p.batch}, d{p.d, p.m, p.n, p.batch};
  if (d.empty()) return;

  check_pointer("d", arguments.d, p.d.alignment);
  if (!a.empty()) check_pointer("a", arguments.a, p.a.alignment);
  if (!b.empty()) check_pointer("b", arguments.b, p.b.alignment);
  const bool reads_c = p.has_c && arguments.beta != 0.0f;
  if (reads_c) check_pointer("c", arguments.c, p.c.alignment);
  if (p.bias != Bias::none) check_pointer("bias", arguments.bias, size_of(p.bias_dtype));

  const auto refuse_overlap = [](const char* name, const char* unless) {
    refuse(fmt::format("d overlaps {0} in memory{1}; pass a d of its own or a copy of {0}", name,
                       unless));
  };
  if (may_overlap(d, arguments.d, a, arguments.a)) refuse_overlap("a", "");
  if (may_overlap(d, arguments.d, b, arguments.b)) refuse_overlap("b", "");
  if (p.bias != Bias::none) {
    const int64_t count = p.bias == Bias::row ? p.n : p.m;
    const Placement bias{MatrixLayout{p.bias_dtype, count, 1}, 1, count, 1};
    if (may_overlap(d, arguments.d, bias, arguments.bias)) refuse_overlap("bias", "");
  }
  if (!reads_c) return;
  const bool same = arguments.c == arguments.d && p.c.dtype == p.d.dtype &&
                    (p.m == 1 || p.c.stride_row == p.d.stride_row) &&
                    (p.n == 1 || p.c.stride_col == p.d.stride_col) &&
                    (p.batch == 1 || p.c.stride_batch == p.d.stride_batch);
  if (!same && may_overlap(d, arguments.d, c, arguments.c))
    refuse_overlap("c", " without being c exactly");
}

void check_workspace(const void* workspace, size_t size, size_t needed) {
  if (size < needed) {
    refuse(
        fmt::format("workspace_size is {} bytes, but the plan needs {}; pass plan.workspace_size() "
                    "bytes, or no workspace to use a pooled one",
                    size, needed));
  }
  if (needed != 0 && reinterpret_cast<uintptr_t>(workspace) % 16 != 0) {
    refuse(fmt::format("workspace is at {}, which is not a multiple of 16 bytes; align it",
                       workspace));
  }
}

}  // namespace cleave
