// What kernels ask of an architecture, and which family of them has it. An architecture is added here;
// who asks for a capability need not know of it.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

/// What a GPU has, by its compute capability (90 for sm_90).
struct ArchTraits {
  bool has_tma = false;  // tensor maps, bulk copies, mbarriers that count bytes
  bool has_wgmma = false;
  bool has_clusters = false;  // with distributed shared memory
  bool has_fp8_mma = false;   // mma.sync of 8-bit floats
  bool has_overlap = false;   // griddepcontrol: a launch may begin before the last one's end
  bool is_specific = false;   // what it has is in its own variant alone, as WGMMA in sm_90a
};

CLEAVE_HD constexpr ArchTraits arch_traits(int compute_capability) {
  const bool hopper = compute_capability / 10 == 9;
  return {.has_tma = hopper,
          .has_wgmma = hopper,
          .has_clusters = hopper,
          .has_fp8_mma = compute_capability >= 89,
          .has_overlap = compute_capability >= 90,
          .is_specific = hopper};
}

/// What a family of kernels is made of.
struct FamilyTraits {
  const char* kernel;    // its template, and the header's name
  bool has_tma = false;  // one warpgroup loads, by TMA as a rule, and the others multiply
  bool has_wgmma = false;
  bool is_persistent = false;  // a CTA takes one work tile after the other, and reads ahead over their ends
  uint32_t least_tile_n;
};

CLEAVE_HD constexpr FamilyTraits family_traits(KernelFamily family) {
  switch (family) {
    case KernelFamily::sm90:
      return {.kernel = "gemm_sm90", .has_tma = true, .has_wgmma = true, .is_persistent = true, .least_tile_n = 16};
    case KernelFamily::direct:
      return {.kernel = "conv_direct", .least_tile_n = 1};
    case KernelFamily::streamed:
      return {.kernel = "gemm_streamed", .is_persistent = true, .least_tile_n = 8};
    default:
      return {.kernel = "gemm_portable", .least_tile_n = 64};
  }
}

CLEAVE_HD constexpr bool has_tma(KernelFamily family) {
  return family_traits(family).has_tma;
}
CLEAVE_HD constexpr bool has_wgmma(KernelFamily family) {
  return family_traits(family).has_wgmma;
}
CLEAVE_HD constexpr bool is_persistent(KernelFamily family) {
  return family_traits(family).is_persistent;
}

}  // namespace cleave
