#include "plan/catalogue/listed.h"

#include "plan/catalogue/splits.h"
#include "plan/catalogue/tiles.h"
#include "plan/catalogue/variants.h"
#include "plan/direct/choice.h"

namespace cleave {

bool is_listed(const Spec& spec) {
  // Its cut is the problem's to say: make_choice takes no other.
  if (spec.family == KernelFamily::direct) return is_direct_spec(spec);
  Spec tile = spec;
  tile.split = SplitKMode::none;
  tile.slices = tile.cluster_k = 1;
  tile.gather = tile.half_lines = tile.fuses_classes = tile.narrow = tile.product = false;
  tile.by_group = tile.apart = tile.halves = false;
  if (spec.columns > 0 || spec.ahead > 0 || !is_tile(tile)) return false;
  const bool tma = has_tma(spec.family);
  const bool alone = spec.multicast_m == 1 && spec.multicast_n == 1;
  const bool fours = spec.multicast_m == 4 && spec.multicast_n == 1 && !spec.pingpong && spec.split == SplitKMode::none;
  if (!alone && (!tma || (!fours && !is_multicast(spec.multicast_m, spec.multicast_n)))) return false;
  if (spec.gather && (!is_plain(spec) || !tma)) return false;
  if (spec.fuses_classes && spec.transposed) return false;
  if (spec.half_lines && (spec.gather || spec.fuses_classes || spec.narrow || spec.product || spec.by_group))
    return false;
  if ((spec.product || spec.by_group) && (spec.gather || spec.fuses_classes)) return false;
  if (spec.halves && !spec.apart) return false;
  if (spec.narrow && (!alone || !tma || spec.pingpong || spec.gather || spec.fuses_classes)) return false;
  return is_split(spec);
}

}  // namespace cleave
