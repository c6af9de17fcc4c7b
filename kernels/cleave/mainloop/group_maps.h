// Tensor maps of groups of K whose operands lie apart (GroupLayout::apart). How long a group's rows are is known on
// the GPU alone, so the producer makes the maps: from those of the launch, when it comes to a group's first tile.
//
// A group's maps have one place in device memory for all CTAs. Each that comes to the group writes them, all the
// same bytes, since it reads them only after its own fence: so none waits for another, and none changes what
// a load on its way still reads.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/tensor_map.h"

namespace cleave {

template <GemmConfig C>
class GroupMaps {
 public:
  CLEAVE_DEVICE explicit GroupMaps(const GemmParams& p) : p_(p) {}

  /// `scratch`: shared address of room for one map.
  CLEAVE_DEVICE void find(const WorkTile& work, uint32_t scratch) {
    if (work.batch == group_) return;
    group_ = work.batch;
    if (work.range.size() == 0) return;
    TensorMap* const maps = p_.group_maps + 2 * group_;
    make(p_.map_a, p_.a.data, p_.size.m, work.range, scratch, maps);
    make(p_.map_b, p_.b.data, p_.size.n, work.range, scratch, maps + 1);
  }

  // The k block of nothing that an empty group has: past the end of a map that exists.
  CLEAVE_DEVICE const TensorMap* a(const WorkTile& work) const {
    return work.range.size() == 0 ? &p_.map_a : p_.group_maps + 2 * group_;
  }
  CLEAVE_DEVICE const TensorMap* b(const WorkTile& work) const {
    return work.range.size() == 0 ? &p_.map_b : p_.group_maps + 2 * group_ + 1;
  }
  CLEAVE_DEVICE uint32_t first_k(const WorkTile& work) const { return work.range.size() == 0 ? p_.size.k : 0; }

 private:
  CLEAVE_DEVICE void make(const TensorMap& of_launch, const void* data, uint32_t rows, GroupRange range,
                          uint32_t scratch, TensorMap* to) const {
    constexpr uint32_t kElement = size_of(C.operands.a), kVectors = sizeof(TensorMap) / 16;
    const auto from = reinterpret_cast<const uint32_t (*)[4]>(&of_launch);
    // The walk leaves few registers: loops stay loops.
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kVectors; ++i) ptx::store_shared_128(scratch + i * 16, from[i]);
    const int64_t before = int64_t(range.begin) * rows;
    ptx::replace_address(scratch, static_cast<const char*>(data) + before * kElement);
    ptx::replace_line_size(scratch, range.size());
    ptx::replace_line_stride(scratch, uint64_t(group_room(p_.groups, range)) * kElement);
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kVectors; ++i) {
      uint32_t words[4];
      ptx::load_shared_128(scratch + i * 16, words);
      reinterpret_cast<uint4*>(to)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
    ptx::fence_tensor_map(to);
  }

  const GemmParams& p_;
  uint32_t group_ = ~0u;
};

}  // namespace cleave
