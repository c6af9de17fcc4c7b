// Loads by threads: one k block of one operand into one stage, with any alignment and any edge. The
// portable kernel loads everything so; the Hopper kernel, what TMA cannot gather. The
// layout in shared memory is TMA's (memory/descriptor.h), so both kernels share the swizzle.
//
// A tile is copied vector by vector; where each comes from is for a *source* to say (matrices here,
// convolutions in gather.h).
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/shared.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// One copy: `valid` bytes from `from` on exist, the rest become zeros.
struct CopyVector {
  const char* from;
  uint32_t valid;
};

/// A vector of 16 bytes that is read `Bytes` at a time, from places that lie apart.
template <uint32_t Bytes>
struct UnalignedVector {
  static_assert(Bytes == 2 || Bytes == 4 || Bytes == 8);
  static constexpr uint32_t kReads = 16 / Bytes, kWords = ceil_div(Bytes, 4u);
  uint32_t read[kReads * kWords];

  /// Begins read `i`, which is zeros unless it exists.
  CLEAVE_DEVICE void load(uint32_t i, const char* from, bool exists) {
    ptx::load_global_if<Bytes>(&read[i * kWords], from, exists);
  }

  CLEAVE_DEVICE void store(uint32_t to) const {
    if constexpr (Bytes == 2) {
      uint32_t words[4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) words[i] = read[2 * i] | read[2 * i + 1] << 16;
      ptx::store_shared_128(to, words);
    } else {
      ptx::store_shared_128(to, read);
    }
  }
};

/// The vectors of a tile of `TileRows` rows of M (or N), `Bytes` each. A tile has `kLines` lines, which
/// are strided in memory, of `TileRows` (or tile_k) elements across, in parts of one swizzle atom.
template <GemmConfig C, Major M, uint32_t TileRows, uint32_t Bytes>
struct TileCopy {
  static constexpr uint32_t kElement = size_of(C.operands.a), kAtom = atom_elements(C.operands.a);
  static constexpr uint32_t kLines = M == Major::k ? TileRows : C.tile.k;
  static constexpr uint32_t kPerLine = 128 / Bytes;
  static constexpr uint32_t kVectors = TileRows * C.tile.k * kElement / Bytes;
  static constexpr uint32_t kThreads = copy_threads(C);
  static constexpr uint32_t kOwn = ceil_div(kVectors, kThreads);  // vectors of a thread
  static constexpr uint32_t kPart = kLines * kPerLine, kParts = ceil_div(kVectors, kPart);
  static_assert(kThreads % kPerLine == 0, "a thread's vectors are one below another");

  /// The element within a part's line at which all of a thread's vectors begin.
  CLEAVE_HD static uint32_t element(uint32_t thread) { return thread % kPerLine * Bytes / kElement; }
  /// Known to the compiler, where a part is a whole number of vectors of every thread.
  CLEAVE_HD static uint32_t part(uint32_t own, uint32_t thread) {
    if (kParts == 1) return 0;
    return kPart % kThreads == 0 ? own / (kPart / kThreads) : (own * kThreads + thread) / kPart;
  }
  CLEAVE_HD static uint32_t line(uint32_t own, uint32_t thread) {
    return (own * kThreads + thread) / kPerLine % kLines;
  }

  /// `source(own, part, line, across)`: the thread's vector number `own`, in line `line` of the tile, from
  /// element `across` on. `Source::kGathers`: vectors exist in whole or not at all, and neighbours in
  /// the tile read the same bytes, which are worth a place in L1.
  template <class Source>
  CLEAVE_DEVICE static void run(uint32_t stage, uint32_t thread, const Source& source) {
    if constexpr (Source::kReadBytes != 0) {
      run_unaligned(stage, thread, source);
    } else {
      run_direct(stage, thread, source);
    }
  }

 private:
  // Narrow copies are many: unrolled in full they would cost more registers than they hide latency.
  // Their parts, of which a source keeps what it knows, are told apart by constant numbers anyway.
  template <class Source>
  CLEAVE_DEVICE static void run_direct(uint32_t stage, uint32_t thread, const Source& source) {
    if constexpr (Bytes < 8 && kParts > 1 && kPart % kThreads == 0) {
      constexpr uint32_t kOfPart = kPart / kThreads;
      CLEAVE_UNROLL
      for (uint32_t part = 0; part < kParts; ++part) {
#pragma unroll 4
        for (uint32_t i = 0; i < kOfPart; ++i) copy_vector(stage, thread, source, part * kOfPart + i, part);
      }
    } else {
#pragma unroll(Bytes >= 8 ? kOwn : 4)
      for (uint32_t own = 0; own < kOwn; ++own) {
        if (kVectors % kThreads != 0 && own * kThreads + thread >= kVectors) break;
        copy_vector(stage, thread, source, own, part(own, thread));
      }
    }
  }

  template <class Source>
  CLEAVE_DEVICE static void copy_vector(uint32_t stage, uint32_t thread, const Source& source, uint32_t own,
                                        uint32_t part) {
    const uint32_t at_line = line(own, thread);
    store<Source::kGathers>(stage + place(part, at_line, thread), source(own, part, at_line, across(part, thread)));
  }

  CLEAVE_DEVICE static uint32_t across(uint32_t part, uint32_t thread) { return part * kAtom + element(thread); }
  /// In the stage, in bytes.
  CLEAVE_DEVICE static uint32_t place(uint32_t part, uint32_t line, uint32_t thread) {
    return part * kLines * 128 + swizzle(line, thread % kPerLine * Bytes);
  }

  /// `source.load(vector, own, part, line, across)`: through registers.
  template <class Source>
  CLEAVE_DEVICE static void run_unaligned(uint32_t stage, uint32_t thread, const Source& source) {
    static_assert(Bytes == 16 && kVectors % kThreads == 0);
    // On their way at the same time.
    constexpr uint32_t kInFlight = kOwn % 4 == 0 ? 4 : kOwn % 2 == 0 ? 2 : 1;
    // A source that keeps what it found of each vector has registers for it only by constant number.
#pragma unroll(Source::kGathers ? kOwn / kInFlight : 1)
    for (uint32_t first = 0; first < kOwn; first += kInFlight) {
      UnalignedVector<Source::kReadBytes> vectors[kInFlight];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kInFlight; ++i) {
        const uint32_t own = first + i, at_part = part(own, thread);
        source.load(vectors[i], own, at_part, line(own, thread), across(at_part, thread));
      }
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kInFlight; ++i) {
        const uint32_t own = first + i;
        vectors[i].store(stage + place(part(own, thread), line(own, thread), thread));
      }
    }
  }

  template <bool Gathers>
  CLEAVE_DEVICE static void store(uint32_t to, const CopyVector& vector) {
    if constexpr (Bytes == 1) {
      ptx::store_shared_8(to, vector.valid != 0 ? load_8(vector.from) : uint8_t(0));
    } else if constexpr (Bytes == 2) {
      // The second of a pair of 8-bit elements may lie outside.
      const uint16_t pair = vector.valid == 0   ? uint16_t(0)
                            : vector.valid == 1 ? load_8(vector.from)
                                                : *reinterpret_cast<const uint16_t*>(vector.from);
      ptx::store_shared_16(to, pair);
    } else if constexpr (Gathers) {
      ptx::copy_async_if<Bytes>(to, vector.from, vector.valid != 0);
    } else {
      ptx::copy_async<Bytes>(to, vector.from, min_of(vector.valid, Bytes));
    }
  }

  CLEAVE_DEVICE static uint8_t load_8(const char* from) { return *reinterpret_cast<const uint8_t*>(from); }
};

/// A tile of a matrix, from line `line0` and element `across0` on; what lies past the ends is zeros.
struct MatrixSource {
  static constexpr bool kGathers = false;
  static constexpr uint32_t kReadBytes = 0;

  const char* base;
  int64_t stride;  // bytes
  uint32_t element;
  uint32_t line0, across0, line_end, across_end;

  CLEAVE_DEVICE CopyVector operator()(uint32_t, uint32_t, uint32_t line, uint32_t across) const {
    const bool inside = line0 + line < line_end && across0 + across < across_end;
    if (!inside) return {base, 0};
    return {base + (line0 + line) * stride + int64_t(across0 + across) * element,
            (across_end - across0 - across) * element};
  }
};

/// The same of rows that a list names.
struct ListedSource : MatrixSource {
  const ListParams* list;

  CLEAVE_DEVICE CopyVector operator()(uint32_t, uint32_t, uint32_t line, uint32_t across) const {
    const bool inside = line0 + line < line_end && across0 + across < across_end;
    const uint32_t row = inside ? listed_row(*list, line0 + line) : kNoRow;
    if (row == kNoRow) return {base, 0};
    return {base + row * stride + int64_t(across0 + across) * element, (across_end - across0 - across) * element};
  }
};

/// The same, read `Bytes` at a time, of which the ends are multiples.
template <uint32_t Bytes>
struct UnalignedMatrixSource : MatrixSource {
  static constexpr uint32_t kReadBytes = Bytes;

  CLEAVE_DEVICE void load(UnalignedVector<Bytes>& vector, uint32_t, uint32_t, uint32_t line, uint32_t across) const {
    const uint32_t first = across0 + across;
    const char* const from = base + (line0 + line) * stride + int64_t(first) * element;
    const uint32_t end = line0 + line < line_end ? across_end : 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < vector.kReads; ++i) vector.load(i, from + i * Bytes, first + i * (Bytes / element) < end);
  }
};

/// `rows`: extent of the operand's M (or N); `depth`: of K.
template <GemmConfig C, Major M, uint32_t TileRows, uint32_t Bytes>
CLEAVE_DEVICE void copy_operand(const OperandParams& operand, uint32_t stage, uint32_t row0, uint32_t k0, uint32_t rows,
                                uint32_t depth, uint32_t batch, uint32_t thread) {
  constexpr uint32_t kElement = size_of(C.operands.a);
  constexpr bool kByRow = M == Major::k;  // lines are rows
  const MatrixSource matrix{static_cast<const char*>(operand.data) + int64_t(batch) * operand.batch_stride * kElement,
                            operand.stride * kElement,
                            kElement,
                            kByRow ? row0 : k0,
                            kByRow ? k0 : row0,
                            kByRow ? rows : depth,
                            kByRow ? depth : rows};
  if constexpr (copies_unaligned(C)) {
    TileCopy<C, M, TileRows, 16>::run(stage, thread, UnalignedMatrixSource<Bytes>{matrix});
  } else {
    TileCopy<C, M, TileRows, Bytes>::run(stage, thread, matrix);
  }
}

/// The same of an operand that is contiguous along K, and whose rows a list names.
template <GemmConfig C, uint32_t TileRows, uint32_t Bytes>
CLEAVE_DEVICE void copy_listed(const OperandParams& operand, const ListParams& list, uint32_t stage, uint32_t row0,
                               uint32_t k0, uint32_t rows, uint32_t depth, uint32_t thread) {
  constexpr uint32_t kElement = size_of(C.operands.a);
  const auto base = static_cast<const char*>(operand.data);
  TileCopy<C, Major::k, TileRows, Bytes>::run(
      stage, thread, ListedSource{{base, operand.stride * kElement, kElement, row0, k0, rows, depth}, &list});
}

/// Both operands of a work tile, k block by k block.
template <GemmConfig C>
class MatrixCopier {
 public:
  CLEAVE_DEVICE MatrixCopier(const GemmParams& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const WorkTile&, const Tile<C>&) {}

  /// K block from `k` on, of the work tile's group where K is grouped, into the stages `a` and `b`.
  CLEAVE_DEVICE void load(const WorkTile& work, const Tile<C>& tile, uint32_t k, uint32_t a, uint32_t b) const {
    constexpr bool kGrouped = C.schedule.grouping == Grouping::k;
    const uint32_t first = kGrouped && !C.schedule.apart ? work.range.begin : 0, k0 = first + k;
    const uint32_t depth = kGrouped ? first + work.range.size() : p_.size.k;
    if constexpr (lists_a(C)) {
      copy_listed<C, C.tile.m, C.operands.load_bytes_a>(p_.a, p_.list, a, tile.m0, k0, tile.m_end(p_.size), depth,
                                                        thread_);
    } else {
      copy_operand<C, C.operands.a_major, C.tile.m, C.operands.load_bytes_a>(
          of_group(p_.a, p_.size.m, work), a, tile.m0, k0, tile.m_end(p_.size), depth, work.batch, thread_);
    }
    if constexpr (lists_b(C)) {
      copy_listed<C, C.tile.n, C.operands.load_bytes_b>(p_.b, p_.list, b, tile.n0, k0, tile.n_end(p_.size), depth,
                                                        thread_);
      return;
    }
    constexpr uint32_t kWidth = output_columns(C);
    CLEAVE_UNROLL
    for (uint32_t piece = 0; piece < C.tile.n / kWidth; ++piece) {
      constexpr uint32_t kPieceBytes = kWidth * C.tile.k * size_of(C.operands.b);
      copy_operand<C, C.operands.b_major, kWidth, C.operands.load_bytes_b>(
          of_piece(of_group(p_.b, p_.size.n, work), piece), b + piece * kPieceBytes, tile.n0, k0, tile.n_end(p_.size),
          depth, work.batch, thread_);
    }
  }

 private:
  /// An operand of `rows` rows, as the work tile's group has it.
  CLEAVE_DEVICE OperandParams of_group(OperandParams operand, uint32_t rows, const WorkTile& work) const {
    if constexpr (C.schedule.apart) {
      const int64_t before = int64_t(work.range.begin) * rows;
      operand.data = static_cast<const char*>(operand.data) + before * size_of(C.operands.a);
      operand.stride = group_room(p_.groups, work.range);
    }
    return operand;
  }

  /// The gates' columns of B, or the ups'.
  CLEAVE_DEVICE OperandParams of_piece(OperandParams b, uint32_t piece) const {
    if constexpr (gated(C)) {
      constexpr bool kByK = C.operands.b_major == Major::k;
      const int64_t first = piece * p_.gates.up * (kByK ? b.stride : 1);
      b.data = static_cast<const char*>(b.data) + first * size_of(C.operands.b);
      if constexpr (kByK) b.stride *= p_.gates.step;
    }
    return b;
  }

  const GemmParams& p_;
  uint32_t thread_;
};

}  // namespace cleave
