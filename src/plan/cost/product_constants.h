// What the model of a product's time (product_cost.h) does not know from data sheets, for each kind of
// mainloop. `python -m bench.fit` fits these to measured (shape, kernel) pairs and writes
// plan/cost/fitted/constants.txt.
#pragma once

#include <cstddef>
#include <span>

#include "cleave/config/gemm_config.h"

namespace cleave {

/// Mainloops whose clocks differ in kind.
enum class MainloopKind : uint8_t {
  k_major,   ///< 16 and 32 bits, both operands contiguous along K
  strips,    ///< one or both contiguous along M or N, in strips of 128 bytes
  eight,     ///< 8 bits, summed in the tensor cores
  promoted,  ///< 8-bit floats whose k blocks are added apart
};
inline constexpr size_t kMainloopKinds = 4;

MainloopKind mainloop_kind(const GemmConfig& config);

// Names and meanings, in the order of the struct's members.
#define CLEAVE_PRODUCT_CONSTANTS(X)                                                       \
  X(launch)         /* us: start, barriers, first bytes, the last CTA's drain */          \
  X(multiply)       /* of the tensor cores' peak clocks */                                \
  X(pingpong)       /* of those, in ping-pong */                                          \
  X(narrow)         /* share more for each 16 columns' worth of an instruction's start */ \
  X(shared_memory)  /* of the clocks that 128 bytes a clock take */                       \
  X(block)          /* clocks a k block: its barriers */                                  \
  X(row)            /* clocks of TMA for a row of 128 bytes */                            \
  X(row_outside)    /* for one outside of the matrix */                                   \
  X(row_received)   /* for one that a partner loads */                                    \
  X(latency)        /* us from a stage's release to its next bytes */                     \
  X(l2)             /* TB/s out of L2 */                                                  \
  X(l2_apart)       /* times more of it where neighbours read different k blocks */       \
  X(misaligned)     /* share more for rows that begin within a line */                    \
  X(shared_line)    /* ns of the whole GPU for a row that is partly outside */            \
  X(memory)         /* of the theoretical bandwidth */                                    \
  X(read_again)     /* share of an operand that a second tile reads from memory */        \
  X(power)          /* of flops, in units of those that 400 TFLOP/s (16-bit) take */      \
  X(power_l2)       /* of L2's bytes, in units of those that 30 TB/s take */              \
  X(norm)           /* of the bounds: the larger, the more of the lesser ones hides */    \
  X(tile)           /* clocks of an epilogue, beside its elements */                      \
  X(store_tma)      /* clocks for each accumulator of a thread, */                        \
  X(store_row)      /* where threads store rows, */                                       \
  X(store_column)   /* and columns */                                                     \
  X(later_tile)     /* of an epilogue's clocks, for a tile that is not the last */        \
  X(share)          /* clocks for a tile whose loads are shared */                        \
  X(in_step)        /* of a multiplication's clocks, for partners to keep in step */      \
  X(cluster)        /* us of a cluster's launch */                                        \
  X(cluster_bytes)  /* bytes a clock between its CTAs */                                  \
  X(parallel)       /* us until partial tiles are seen by another CTA */                  \
  X(partial_bytes)  /* bytes a clock of an SM moving those */                             \
  X(stream)         /* us of stream_k's meeting */                                        \
  X(stream_blocks)  /* of the clocks of k blocks, where they are cut anywhere */          \
  X(promote)        /* clocks of adding an accumulator apart */                           \
  X(promote_singly) /* more of them where every column has a scale of its own */          \
  X(copy)           /* clocks of a thread for each 16 bytes that it copies */

struct ProductConstants {
#define CLEAVE_MEMBER(name) double name;
  CLEAVE_PRODUCT_CONSTANTS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
};

/// Fitted on an H200; other Hopper parts have the same in their own clocks and bandwidths.
const ProductConstants& product_constants(MainloopKind kind);

}  // namespace cleave
