// Whether a kernel serves a call. What is wrong is thrown as std::invalid_argument, with its remedy.
#pragma once

#include <initializer_list>

#include "call.h"
#include "launch/limits.h"
#include "refuse.h"

namespace emitted::operation {

/// The strides, and sizes that no tile serves.
void check_layouts(const cleave::GemmProblem& problem, const Kernel& kernel);

/// Whether there is nothing to compute.
bool is_empty(const cleave::GemmProblem& problem);

/// Refuses more tiles than the kernel can count.
View make_view(const cleave::GemmProblem& problem, const Kernel& kernel);

/// Pointers that are not null, factors, and C where it is read.
void check_arguments(const Given& given, const Kernel& kernel);

/// Refuses null pointers that a launch follows.
void check_present(const Given& given);

// What the checks share.

inline cleave::GemmSizes sizes_of(const cleave::GemmProblem& p) {
  return {{uint32_t(p.m), uint32_t(p.n), uint32_t(p.k)}, uint32_t(p.batch)};
}

inline void check_address(const char* name, const void* data, uint32_t alignment) {
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0)
    refuse(name, " is at ", data, "; it must be at a multiple of ", alignment, " bytes");
}

inline void check_factors(const Given& given) {
  const std::string fault = cleave::find_factor_fault(given.problem, given.arguments);
  if (!fault.empty()) refuse(fault);
}

struct Pointer {
  const char* name;
  const void* data;
  bool is_read = true;
};

inline void check_pointers(std::initializer_list<Pointer> pointers) {
  for (const Pointer& pointer : pointers)
    if (pointer.is_read && pointer.data == nullptr) refuse(pointer.name, " is a null pointer; pass the data");
}

}  // namespace emitted::operation
