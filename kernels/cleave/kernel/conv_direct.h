// Convolutions of narrow groups or few channels (sm_80 and later), whose pixels no tile of A gathers. Each method has a
// header of its name in cleave/direct, which says whom it serves, and how.
#pragma once

#include "cleave/direct/at_once.h"
#include "cleave/direct/columns.h"
#include "cleave/direct/columns_wgrad.h"
#include "cleave/direct/lines_wgrad.h"
#include "cleave/direct/pixels.h"
#include "cleave/direct/pixels_wgrad.h"
#include "cleave/direct/rows.h"
#include "cleave/direct/shift.h"
#include "cleave/direct/shift_wgrad.h"
#include "cleave/direct/spread.h"
#include "cleave/direct/spread_wgrad.h"
#include "cleave/direct/staged_wgrad.h"
#include "cleave/direct/sweep.h"
#include "cleave/direct/windows.h"
#include "cleave/direct/windows_wgrad.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_DEVICE void conv_direct(const Params<C>& p) {
  extern __shared__ __align__(16) uint8_t shared[];
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  if constexpr (C.direct.method == DirectMethod::rows) {
    DirectRows<C>(p, ptx::shared_address(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::spread && C.conv.kind == Conv::wgrad) {
    DirectSpreadWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::spread) {
    DirectSpread<C>(p, shared).run();
  } else if constexpr (C.direct.method == DirectMethod::shift && C.conv.kind == Conv::wgrad) {
    DirectShiftWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::shift) {
    DirectShift<C>(p, ptx::shared_address(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::lines) {
    DirectLinesWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::windows && C.conv.kind == Conv::wgrad) {
    DirectWindowsWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::windows) {
    DirectWindows<C>(p, ptx::shared_address(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::sweep) {
    DirectSweep<C>(p, ptx::shared_address(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::at_once) {
    DirectAtOnce<C>(p, ptx::shared_address(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::columns && C.conv.kind == Conv::wgrad) {
    DirectColumnsWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::columns) {
    DirectColumns<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.direct.method == DirectMethod::staged) {
    DirectStagedWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else if constexpr (C.conv.kind == Conv::wgrad) {
    DirectWgrad<C>(p, reinterpret_cast<float*>(shared)).run();
  } else {
    DirectConv<C>(p, reinterpret_cast<float*>(shared)).run();
  }
}

}  // namespace cleave
