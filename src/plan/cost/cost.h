// An analytic estimate of a choice's time. It ranks choices; measured winners (tuned.h) overrule
// it.
#pragma once

#include "plan/choice/choice.h"
#include "plan/cost/product_cost.h"

namespace cleave {

/// max(bytes / bandwidth, operations / peak), in microseconds: no implementation is faster.
double roofline_us(const GemmProblem& problem, const DeviceInfo& device);

/// Microseconds on the GPU for one launch of `choice`, inputs in device memory (cold L2).
double predict_us(const Choice& choice, const DeviceInfo& device);

/// predict_us() without the trees (product_residual.h), which take ten times as long as all the rest.
double predict_roughly_us(const Choice& choice, const DeviceInfo& device);

/// Whether predict_us() takes `choice` by the model of product_cost.h: a plain product on the Hopper kernel.
bool is_predicted_product(const Choice& choice);

/// The same of groups and convolutions, whose model is here, with what the time is made of, if D has so many tiles. A
/// Hopper kernel's.
ProductTime predict_other(const Choice& choice, const DeviceInfo& device, double tiles);

/// Bytes of a product of plain matrices that come from memory. Tiles that read the same lines are not always in step:
/// `read_again` is the share of an operand that comes once more.
double memory_bytes(const Choice& choice, double read_again);

/// Microseconds in which L2 takes a grouped product's `bytes` from memory and gives CTAs `loaded` of them: what counts
/// where few rows share a group's weights.
double grouped_l2_us(double bytes, double loaded);

/// parallel: CTAs that read a tile's partial tiles, which are written once: the slices that stay, or the last group's
/// ranks.
double joining_ctas(const Choice& choice, const DeviceInfo& device);

}  // namespace cleave
