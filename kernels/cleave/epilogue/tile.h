// One tile of D as a thread sees it: where its accumulators belong.
#pragma once

#include "cleave/epilogue/epilogue.h"
#include "cleave/epilogue/fragment.h"

namespace cleave {

template <GemmConfig C>
struct Tile {
  const Fragment<C>& fragment;
  uint32_t m0, n0;  // first row and column
  uint32_t batch;
  uint32_t group_end;  // past the group's last row (column), where those are grouped

  /// Past the last row and column of D, or of the tile's group. What is not grouped is read from the
  /// parameters every time: two registers more, and the largest tiles spill.
  CLEAVE_HD uint32_t m_end(const EpilogueParams& p) const {
    return C.grouping == Grouping::m ? group_end : p.m;
  }
  CLEAVE_HD uint32_t n_end(const EpilogueParams& p) const {
    return C.grouping == Grouping::n ? group_end : p.n;
  }

  CLEAVE_HD uint32_t row(uint32_t block) const { return m0 + fragment.row(block); }
  CLEAVE_HD uint32_t col(uint32_t block) const { return n0 + fragment.col(block); }
};

}  // namespace cleave
