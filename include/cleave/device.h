// Devices and the state of the runtime.
#pragma once

#include <cstddef>
#include <string>

#include "cleave/error.h"

namespace cleave {

struct DeviceInfo {
  std::string name;
  int compute_capability = 0;  ///< 90 for an H100
  int num_sms = 0;
  int shared_memory_per_block = 0;  ///< opt-in maximum, bytes
  int l2_bytes = 0;
  double memory_gb_per_s = 0;  ///< theoretical
  double clock_ghz = 0;        ///< maximum SM clock
  size_t memory_bytes = 0;
};

/// Number of usable CUDA devices; 0 without a GPU or driver (never throws).
CLEAVE_API int device_count() noexcept;

/// Cached after the first call. The pseudo ordinal kPlanOnlyH100 has an H100 SXM's values, kPlanOnlyH200 an H200 SXM's.
CLEAVE_API const DeviceInfo& device_info(int device);

/// Devices to plan for without a GPU: plans can be explained and compiled as for an H100 or H200 SXM, but not run.
inline constexpr int kPlanOnlyH100 = -2;
inline constexpr int kPlanOnlyH200 = -3;

/// Frees every pooled workspace (graphs captured with them must not be replayed afterwards).
CLEAVE_API void release_workspaces();

}  // namespace cleave
