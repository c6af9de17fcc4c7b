// One tile of D as a thread sees it: where its accumulators belong.
#pragma once

#include "cleave/epilogue/fragment.h"

namespace cleave {

template <GemmConfig C>
struct Tile {
  const Fragment<C>& fragment;
  uint32_t m0, n0;        // first row and column
  uint32_t m_end, n_end;  // past the last ones: of D, or of the tile's group
  uint32_t batch;

  CLEAVE_HD uint32_t row(uint32_t block) const { return m0 + fragment.row(block); }
  CLEAVE_HD uint32_t col(uint32_t block) const { return n0 + fragment.col(block); }
};

}  // namespace cleave
