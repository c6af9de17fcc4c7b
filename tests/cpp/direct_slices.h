// How weight gradients that convolve directly split K.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/choice/choice.h"

namespace cleave {

/// As many slices as were `asked` for, any number for 0, with room for their partial sums.
inline void expect_slices(const Choice& choice, int64_t asked) {
  if (asked > 0) {
    EXPECT_EQ(choice.spec.slices, uint32_t(asked));
  }
  EXPECT_EQ(choice.spec.split, choice.spec.slices > 1 ? SplitKMode::parallel : SplitKMode::none);
  EXPECT_EQ(choice.partial_bytes > 0, choice.spec.slices > choice.spec.cluster_k);
  EXPECT_LE(direct_made(choice.config) * sizeof(float), smem_plan(choice.config).bytes);
}

/// Compiles what they run for every architecture; where there are no clusters, without.
inline void expect_no_spills(const std::vector<Choice>& choices, size_t kernels) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    std::set<std::string> sources;
    for (const Choice& choice : choices) {
      GemmConfig c = choice.config;
      if (arch == std::string("sm_80")) c.cluster.k = 1;
      const auto [source, is_new] = sources.insert(gemm_source(c));
      if (is_new) expect_no_spills({*source}, arch, resident_ctas(c) > 1 ? 128 : 255);
    }
    EXPECT_GE(sources.size(), kernels);
  }
}

}  // namespace cleave
