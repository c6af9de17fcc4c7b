#include "plan/conv_params.h"

#include <cstring>
#include <memory>
#include <type_traits>

#include "launch/conv_maps.h"
#include "launch/conv_params.h"
#include "runtime/tensor_map.h"

namespace cleave {

std::vector<std::byte> make_conv_params(const Choice& choice, const GemmParams& gemm) {
  const GemmConfig& c = choice.config;
  const ConvGeometry& g = choice.geometry;
  // A vector's memory is not aligned to TensorMap's 128 bytes; what the driver encodes has to be.
  std::vector<std::byte> bytes;
  visit_params(c, nullptr, [&](auto* type) {
    auto params = std::make_unique<std::remove_pointer_t<decltype(type)>>();
    static_cast<GemmParams&>(*params) = gemm;
    set_geometry(c, g, deal_classes(c, g), *params);
    visit_class_maps(c, g, *params,
                     [](TensorMap& map, const void*, const auto& shape) { encode_placeless(map, shape()); });
    bytes.resize(used_params_bytes(c, params->class_count));
    std::memcpy(bytes.data(), static_cast<const void*>(params.get()), bytes.size());
  });
  return bytes;
}

void place_class_maps(const Choice& choice, void* params) {
  const GemmConfig& c = choice.config;
  visit_params(c, params, [&](auto* conv) {
    visit_class_maps(c, choice.geometry, *conv,
                     [](TensorMap& map, const void* data, const auto&) { replace_address(map, data); });
  });
}

}  // namespace cleave
