#include "array/array_type.h"

#include <vector>

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// The table of major version 1, which may stand behind newer ones.
const dlpack::ExchangeApi* find_exchange(nb::handle type) {
  nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  constexpr const char* kName = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule.ptr(), kName)) return nullptr;
  auto* header = static_cast<const dlpack::ExchangeHeader*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  while (header && header->version.major != 1) header = header->previous;
  auto* api = reinterpret_cast<const dlpack::ExchangeApi*>(header);
  return api && api->view && api->current_stream ? api : nullptr;
}

std::shared_ptr<const ArrayType> describe(nb::handle type) {
  const nb::object adapter = nb::module_::import_("cleave._arrays").attr("adapter_for")(type);
  return std::make_shared<const ArrayType>(ArrayType{.type = nb::borrow(type),
                                                     .exchange = find_exchange(type),
                                                     .empty = adapter.attr("empty"),
                                                     .empty_channels_last = adapter.attr("empty_channels_last"),
                                                     .channels_last = adapter.attr("channels_last"),
                                                     .assign = adapter.attr("assign"),
                                                     .finish = adapter.attr("finish"),
                                                     .current_stream = adapter.attr("current_stream"),
                                                     .on_stream = adapter.attr("on_stream"),
                                                     .record_stream = adapter.attr("record_stream"),
                                                     .increment_version = adapter.attr("increment_version"),
                                                     .requires_grad = adapter.attr("requires_grad"),
                                                     .forward_ad = adapter.attr("forward_ad"),
                                                     .immutable = nb::cast<bool>(adapter.attr("immutable"))});
}

}  // namespace

std::shared_ptr<const ArrayType> array_type_of(nb::handle array) {
  // A process uses one or two classes. Past the bound (a program that makes classes in a loop) the
  // last entry is reused, so that such classes are not kept alive.
  constexpr size_t kMaxTypes = 32;
  static auto& known = *new std::vector<std::shared_ptr<const ArrayType>>;  // never destroyed
  const nb::handle type = array.type();
  for (const auto& entry : known) {
    if (entry->type.is(type)) return entry;
  }
  auto description = describe(type);
  if (known.size() < kMaxTypes) {
    known.push_back(description);
  } else {
    known.back() = description;
  }
  return description;
}

nb::object finished(nb::handle like, const nb::object& made) {
  const nb::object finish = array_type_of(like)->finish;
  return finish.is_none() ? made : finish(made);
}

}  // namespace cleave::python
