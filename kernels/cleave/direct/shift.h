// Convolutions of groups of few channels, and their data gradients, by tensor cores (sm_80 and later). A pixel lies in
// shared memory once for all taps of all filters that meet it (config/direct_shift.h).
//
// Roles      all warps copy the gathered pixels of a tile, of some groups' channels, then multiply: warps.m x warps.n,
//            the first share the tile's cells, the others its columns, which are channels of D. CTAs go from tile to
//            tile, of the same groups
// Operands   pixels in two stages of shared memory, whose neighbours lie in different banks; a row of a fragment is at
//            its cell's place, and a tap's way from there. Filters in shared memory, as they lie, for all tiles
// Sums       float32, in the order of the taps. The four threads that hold a row's columns in pairs exchange them:
//            each stores 8 channels of a pixel
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/direct/shift_pixels.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/epilogue/transpose_in_quad.h"
#include "cleave/ptx/mma_sync.h"
#include "cleave/ptx/shared.h"

namespace cleave {

template <GemmConfig C>
class DirectShift {
  static constexpr Conv kKind = C.conv.kind;
  static constexpr DType kType = C.operands.a;
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr uint32_t kCellDown = shift_cell(kKind, kDown), kCellAcross = shift_cell(kKind, kAcross);
  static constexpr uint32_t kGroup = C.direct.group, kDepth = C.tile.k;  // channels of a group, made and gathered
  static constexpr uint32_t kBlocks = shift_blocks(C), kRowBlocks = shift_row_blocks(C);
  static constexpr uint32_t kColumns = kBlocks * 8;                               // of a warp,
  static constexpr uint32_t kGroups = kColumns > kGroup ? kColumns / kGroup : 1;  // of so many groups
  static constexpr uint32_t kBlocksOfGroup = kBlocks / kGroups;
  static constexpr uint32_t kChannels = shift_channels(C);
  static constexpr uint32_t kPixelBytes = shift_pixel_bytes(C), kFilterBytes = shift_filter_bytes(C);
  static constexpr uint32_t kWarps = kDirectThreads / 32;
  static constexpr bool kBack = kKind == Conv::dgrad;
  static_assert(size_of(kType) == 2 && C.warps.m * C.warps.n == kWarps && C.direct.vector == 8 && kDepth % 8 == 0);
  static_assert(C.tile.n % kGroup == 0 && (kColumns % kGroup == 0 || kGroup % kColumns == 0) && 4 % kBlocks == 0);
  static_assert(kRowBlocks * kBlocks % 2 == 0);

 public:
  CLEAVE_DEVICE DirectShift(const Params<C>& p, uint32_t smem)
      : p_(p),
        zeros_(smem),
        filters_(smem + shift_notes_bytes(C)),
        stages_(filters_ + shift_filters_bytes(C)),
        columns_(shift_reach(kKind, kAcross, p.shape.cells[1])) {
    const uint32_t block0 = warp_ % C.warps.n * kBlocks, group0 = block0 * 8 / kGroup;
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < kRowBlocks; ++r)
      pixels_[r] = shift_place(C, p.shape, shift_cell_of(p.shape, row0() + r * 16 + lane_ % 16)) * kPixelBytes +
                   group0 * kDepth * 2;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < ceil_div(kBlocks, 2u); ++i) {
      const uint32_t block = block0 + min_of(i * 2 + lane_ / 16, kBlocks - 1), column = block * 8;
      const uint32_t filter = (kBack ? column / kGroup * kDepth : column) + lane_ % 8;
      filter_[i] = filters_ + filter * kFilterBytes + (kBack ? column % kGroup * 2 : 0);
    }
  }

  CLEAVE_DEVICE void run() {
    uint32_t next = blockIdx.x, stage = stages_;
    const uint32_t block = locate(p_.shape, next).channel;  // of all its tiles
    load_filters(block);
    load_pixels(next, stage);
    note_shift_cells<C>(p_.shape, zeros_);
    const PixelStore<C> store(p_, min_of(channel(block), p_.shape.channels - 8));
    for (uint32_t cta = next; cta < p_.shape.tiles; cta = next) {
      ptx::copy_async_wait<0>();
      __syncthreads();  // the other stage's readers are done, too
      next = cta + gridDim.x;
      const uint32_t other = 2 * stages_ + shift_stage_bytes(C) - stage;
      load_pixels(next, other);
      make_class<0>(locate(p_.shape, cta), stage, store);
      stage = other;
    }
  }

 private:
  /// The warp's first row.
  CLEAVE_DEVICE uint32_t row0() const { return warp_ / C.warps.n * kRowBlocks * 16; }

  /// The first of those that this thread stores.
  CLEAVE_DEVICE uint32_t channel(uint32_t block) const {
    return block * C.tile.n + (warp_ % C.warps.n * kBlocks + lane_ % kBlocks) * 8;
  }

  /// Zeros past the last. They arrive with the first pixels.
  CLEAVE_DEVICE void load_filters(uint32_t block) const {
    constexpr uint32_t kPieces = shift_filter_elements(C) / 8, kCount = shift_filters(C) * kPieces;
    const uint32_t first = block * shift_filters(C);
    const uint32_t filters = kBack ? p_.shape.channels / kGroup * kDepth : p_.shape.channels;
    const auto* const from = static_cast<const uint16_t*>(p_.b.data);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < kCount; i += kDirectThreads) {
      const uint32_t filter = i / kPieces, piece = i % kPieces;
      const bool exists = first + filter < filters;
      ptx::copy_async<16>(filters_ + filter * kFilterBytes + piece * 16,
                          from + (exists ? (first + filter) * p_.b.stride + piece * 8 : 0), exists ? 16 : 0);
    }
  }

  CLEAVE_DEVICE void load_pixels(uint32_t cta, uint32_t stage) const {
    if (cta < p_.shape.tiles) load_shift_pixels<C>(p_.shape, p_.a, locate(p_.shape, cta), stage);
    ptx::copy_async_commit();
  }

  using WarpSums = float[kRowBlocks][kBlocks][4];

  /// The pixels of class `Class`, and of those after it.
  template <uint32_t Class>
  CLEAVE_DEVICE void make_class(const DirectTile& tile, uint32_t stage, const PixelStore<C>& store) const {
    if constexpr (Class < kCellDown * kCellAcross) {
      WarpSums sums = {};
      multiply<Class, 0>(stage, sums);
      store_class<Class>(tile, sums, store);
      make_class<Class + 1>(tile, stage, store);
    }
  }

  /// From step `Step` of K, two eights, on.
  template <uint32_t Class, uint32_t Step>
  CLEAVE_DEVICE void multiply(uint32_t stage, WarpSums& sums) const {
    if constexpr (Step * 2 < shift_eights(C, Class)) {
      constexpr ShiftEight kFirst = shift_eight(C, Class, Step * 2), kSecond = shift_eight(C, Class, Step * 2 + 1);
      uint32_t cols[ceil_div(kBlocks, 2u)][4];
      const bool second_filter = lane_ / 8 % 2, second_pixel = lane_ / 16;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < ceil_div(kBlocks, 2u); ++i) {
        const uint32_t from =
            filter_[i] + way_in_filter(kFirst) + second_filter * (way_in_filter(kSecond) - way_in_filter(kFirst));
        ptx::ldmatrix<kBack>(!kSecond.exists && second_filter ? zeros_ : from, cols[i]);
      }
      const uint32_t way =
          (kFirst.line * columns_ + kFirst.column) * kPixelBytes + kFirst.part * 16 +
          second_pixel * (((kSecond.line - kFirst.line) * columns_ + kSecond.column - kFirst.column) * kPixelBytes +
                          (kSecond.part - kFirst.part) * 16);
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < kRowBlocks; ++r) {
        CLEAVE_UNROLL
        for (uint32_t group = 0; group < kGroups; ++group) {
          uint32_t rows[4];
          const uint32_t from = stage + pixels_[r] + way + group * kDepth * 2;
          ptx::ldmatrix<false>(!kSecond.exists && second_pixel ? zeros_ : from, rows);
          CLEAVE_UNROLL
          for (uint32_t i = 0; i < kBlocksOfGroup; ++i) {
            const uint32_t block = group * kBlocksOfGroup + i;
            ptx::mma<kType, kType>(sums[r][block], rows, cols[block / 2][block % 2 * 2],
                                   cols[block / 2][block % 2 * 2 + 1]);
          }
        }
      }
      multiply<Class, Step + 1>(stage, sums);
    }
  }

  /// Filters lie with all taps, and channels of a tap are neighbours; dgrad: an eight are other filters.
  CLEAVE_DEVICE static constexpr uint32_t way_in_filter(const ShiftEight& eight) {
    return kBack ? eight.part * 8 * kFilterBytes + eight.tap * kGroup * 2 : (eight.tap * kDepth + eight.part * 8) * 2;
  }

  template <uint32_t Class>
  CLEAVE_DEVICE void store_class(const DirectTile& tile, const WarpSums& sums, const PixelStore<C>& store) const {
    // A warp's blocks, of 8 rows by 8 columns each, four by four: those a row has come first.
    CLEAVE_UNROLL
    for (uint32_t first = 0; first < kRowBlocks * 2 * kBlocks; first += 4) {
      uint32_t pairs[2][4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t at = first + i % 4, half = at / kBlocks;
        pairs[i / 4][i % 4] = __float_as_uint(sums[half / 2][at % kBlocks][half % 2 * 2 + i / 4]);
      }
      transpose_in_quad(pairs[0]);
      transpose_in_quad(pairs[1]);
      float own[8];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 8; ++i) own[i] = __uint_as_float(pairs[i % 2][i / 2]);
      const uint32_t row = row0() + (first + lane_ % 4) / kBlocks * 8 + lane_ / 4;
      const ShiftCell cell = noted_shift_cell(zeros_, row);
      const uint32_t image = tile.image * p_.shape.together + cell.image;
      const uint32_t y = (tile.row * p_.shape.cells[0] + cell.line) * kCellDown + Class / kCellAcross;
      const uint32_t x = (tile.column * p_.shape.cells[1] + cell.column) * kCellAcross + Class % kCellAcross;
      const bool exists = cell.image < p_.shape.together && image < p_.shape.images && y < p_.shape.made[0] &&
                          x < p_.shape.made[1] && channel(tile.channel) < p_.shape.channels;
      if (exists) store(pixel_number(image, y, x, p_.shape.made), own);
    }
  }

  const Params<C>& p_;
  const uint32_t warp_ = threadIdx.x / 32, lane_ = threadIdx.x % 32;
  const uint32_t zeros_, filters_, stages_;
  const uint32_t columns_;                  // gathered, of a line of a tile
  uint32_t pixels_[kRowBlocks];             // in a stage: this thread's rows for ldmatrix, at K's first tap
  uint32_t filter_[ceil_div(kBlocks, 2u)];  // and of two blocks' filters
};

}  // namespace cleave
