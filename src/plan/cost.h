// An analytic estimate of a choice's time. It ranks choices; measured winners (tuned.h) overrule
// it.
#pragma once

#include "plan/choice.h"
#include "plan/product_cost.h"

namespace cleave {

/// max(bytes / bandwidth, operations / peak), in microseconds: no implementation is faster.
double roofline_us(const GemmProblem& problem, const DeviceInfo& device);

/// Microseconds on the GPU for one launch of `choice`, inputs in device memory (cold L2).
double predict_us(const Choice& choice, const DeviceInfo& device);

/// predict_us() without the trees (product_residual.h), which take ten times as long as all the rest.
double predict_roughly_us(const Choice& choice, const DeviceInfo& device);

/// Whether predict_us() takes `choice` by the model of product_cost.h: a plain product on the Hopper kernel.
bool is_predicted_product(const Choice& choice);

/// The same of groups and convolutions, whose model is here, with what the time is made of. A Hopper kernel's.
ProductTime predict_other(const Choice& choice, const DeviceInfo& device);

/// Clusters of `size` CTAs that run at the same time.
double resident_clusters(uint32_t size, const DeviceInfo& device);

}  // namespace cleave
