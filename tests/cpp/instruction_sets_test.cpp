#include "cpu/instruction_sets.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)

namespace cleave::cpu {
namespace {

TEST(InstructionSets, AreWhatTheCompilersOwnFunctionSays) {
  const InstructionSets has = instruction_sets();
  EXPECT_EQ(has.avx2_fma, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(has.avx512f, bool(__builtin_cpu_supports("avx512f")));
}

}  // namespace
}  // namespace cleave::cpu

#endif
