#include "plan/plans/kernel_params.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "launch/conv_maps.h"
#include "launch/conv_params.h"
#include "launch/product_params.h"
#include "plan/direct/choice.h"
#include "plan/direct/sweep_maps.h"
#include "runtime/tensor_map.h"

namespace cleave {
namespace {

std::vector<std::byte> bytes_of(const auto& params, size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&params);
  return std::vector(bytes, bytes + size);
}

/// Calls visit(map, data, shape) for the maps of A, B and D, as far as the kernel has them.
template <class Visit>
void visit_maps(const Choice& choice, GemmParams& params, const Visit& visit) {
  const GemmConfig& c = choice.config;
  if (has_tma(c.family)) visit_matrix_maps(c, choice.problem, params, visit);
  if (c.direct.method == DirectMethod::sweep) visit_sweep_maps(choice, params, visit);
}

}  // namespace

std::vector<std::byte> make_params(const Choice& choice, const Joins* joins) {
  const GemmProblem& p = choice.problem;
  const GemmConfig& c = choice.config;
  GemmParams gemm{};
  set_problem(c, p, gemm);
  if (joins != nullptr) joins->place(gemm);
  gemm.schedule = make_schedule(choice.schedule);
  const auto encode = [](TensorMap& map, const void*, const auto& shape) { map = make_tensor_map(kNowhere, shape()); };
  visit_maps(choice, gemm, encode);
  if (c.across.ranks > 1) {
    const AcrossParams across{gemm, {}};
    return bytes_of(across, sizeof across);
  }
  if (c.conv.kind == Conv::none) return bytes_of(gemm, sizeof gemm);
  if (c.family == KernelFamily::direct) {
    const DirectParams direct{gemm, direct_shape(choice)};
    return bytes_of(direct, sizeof direct);
  }
  return visit_params(c, nullptr, [&](auto* type) {
    // A vector's memory is not aligned to TensorMap's 128 bytes; what the driver encodes has to be.
    const auto params = std::make_unique<std::remove_pointer_t<decltype(type)>>();
    static_cast<GemmParams&>(*params) = gemm;
    set_geometry(c, p.conv, deal_classes(c, p.conv, choice.part), *params);
    visit_class_maps(c, p, *params, encode);
    return bytes_of(*params, used_params_bytes(c, params->class_count));
  });
}

size_t most_params_bytes(const Choice& choice) {
  const GemmConfig& c = choice.config;
  if (c.conv.kind == Conv::none) return c.across.ranks > 1 ? sizeof(AcrossParams) : sizeof(GemmParams);
  if (c.family == KernelFamily::direct) return sizeof(DirectParams);
  const size_t most = count_classes(choice.problem.conv, c.conv.fuses_classes);
  return used_params_bytes(c, uint32_t(std::min<size_t>(most, c.conv.class_capacity)));
}

void place_maps(const Choice& choice, void* buffer, GemmParams& params) {
  const GemmConfig& c = choice.config;
  const auto place = [](TensorMap& map, const void* data, const auto&) { replace_address(map, data); };
  visit_maps(choice, params, place);
  if (!has_tma(c.family) || c.conv.kind == Conv::none) return;
  visit_params(c, buffer, [&](auto* conv) { visit_class_maps(c, choice.problem, *conv, place); });
}

}  // namespace cleave
