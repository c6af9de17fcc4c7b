// What the smaller kernels are compiled to: no spills, no stack, few registers.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "jit/compiler.h"
#include "jit/nvrtc.h"

namespace cleave {

/// Whether it reads a field of its configuration when it runs (config/epilogue_params.h): an object of the template's
/// parameter is in it then.
inline bool reads_configuration(const CompiledKernel& kernel) {
  return kernel.cubin.find("_ZTAX") != kernel.cubin.npos;
}

inline void expect_no_spills(const std::set<std::string>& sources, const std::string& arch, uint32_t registers = 64) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC is not installed: pip install nvidia-cuda-nvrtc";
  for (const std::string& source : sources) {
    SCOPED_TRACE(source);
    CompiledKernel kernel;
    ASSERT_NO_THROW(kernel = compile(source, arch));
    EXPECT_EQ(kernel.resources.spill_store_bytes + kernel.resources.spill_load_bytes, 0u);
    EXPECT_EQ(kernel.resources.stack_bytes, 0u);
    EXPECT_FALSE(reads_configuration(kernel));
    EXPECT_EQ(kernel.log.find("serialized"), kernel.log.npos) << "ptxas waits for each WGMMA";
    EXPECT_LE(kernel.resources.registers, registers);
  }
}

}  // namespace cleave
