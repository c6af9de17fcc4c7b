// Calls over ranks that were checked before: what follows from their arguments is found again by how these look, so
// that those of one operation of one group, which are like them, are made at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "array/tensor.h"
#include "plans/plan_cache.h"
#include "product/product.h"

namespace cleave::python {

inline constexpr size_t kAligned = 16;  // what no kernel asks more than

/// To whatever `text` has `append`.
void add_bytes(auto& text, const auto& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// What checks of tensors look at, so that what was checked once need not be again: a form, a type, a device and the
/// sizes of each, or nothing of one that is not given.
void add_kind(auto& text, const TensorView* view) {
  if (view == nullptr) return add_bytes(text, -1);
  add_bytes(text, view->ndim), add_bytes(text, view->device);
  add_bytes(text, view->element.code), add_bytes(text, view->element.bits);
  for (int i = 0; i < std::min(view->ndim, Operand::kMaxRank); ++i) add_bytes(text, view->shape[i]);
}

/// And plans: how they lie.
void add_layout(auto& text, const TensorView* view) {
  add_kind(text, view);
  if (view == nullptr) return;
  add_bytes(text, uint8_t(reinterpret_cast<uintptr_t>(view->data) % kAligned));
  for (int i = 0; i < std::min(view->ndim, Operand::kMaxRank); ++i) add_bytes(text, view->stride[i]);
}

inline PlanOptions product_options(nanobind::handle precision, bool use_fast_accum) {
  PlanOptions options{.fast_accumulation = use_fast_accum};
  if (given(precision)) options.precision = parse_name<Precision>(precision, "precision");
  return options;
}

template <size_t Count>
using ViewsOf = std::array<std::optional<TensorView>, Count>;

/// A call's tensors, of which each may be None.
template <size_t Count>
ViewsOf<Count> read(TensorReader& reader, const std::array<nanobind::handle, Count>& arrays,
                    const char* const (&names)[Count]) {
  ViewsOf<Count> views;
  for (size_t i = 0; i < Count; ++i)
    if (given(arrays[i])) views[i] = reader.read(arrays[i], names[i]);
  return views;
}

/// `Made`: what a call does. `Tensors`: how many it has. `Options`: how many others, which are told
/// apart by which objects they are, and kept.
template <class Made, size_t Tensors, size_t Options>
class KnownCalls {
 public:
  using Views = ViewsOf<Tensors>;
  using Others = std::array<nanobind::handle, Options>;
  /// Shared, since a call goes on without the GIL while another thread may clear them.
  using Shared = std::shared_ptr<const Made>;

  /// `number`: what else tells calls apart.
  void add(const Views& views, const Others& others, int64_t number, Shared made) {
    constexpr size_t kMost = 4096;
    if (known_.size() >= kMost) known_.clear();
    Known& known = known_.insert_or_assign(std::string(key_of(views, others, number)), Known{}).first->second;
    for (size_t i = 0; i < Options; ++i) known.others[i] = nanobind::borrow(others[i]);
    known.made = std::move(made);
    known.cleared = cleared();
  }

  /// nullptr where there was no such call.
  Shared find(const Views& views, const Others& others, int64_t number) const {
    const auto found = known_.find(std::string_view(key_of(views, others, number)));
    return found == known_.end() || found->second.cleared != cleared() ? nullptr : found->second.made;
  }

  bool empty() const { return known_.empty(); }
  void clear() { known_.clear(); }

 private:
  struct Known {
    std::array<nanobind::object, Options> others = {};
    Shared made;
    uint64_t cleared = ~uint64_t(0);  // when it was made
  };

  /// A text that needs no memory: of a call's tensors.
  class ShortText {
   public:
    void append(const char* bytes, size_t count) {
      std::memcpy(bytes_.data() + size_, bytes, count);
      size_ += count;
    }
    operator std::string_view() const { return {bytes_.data(), size_}; }

   private:
    std::array<char, 1024> bytes_;
    size_t size_ = 0;
  };

  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  static uint64_t cleared() { return RecentPlans<GemmProblem>::shared().cleared(); }

  static ShortText key_of(const Views& views, const Others& others, int64_t number) {
    ShortText key;
    for (const auto& view : views) add_layout(key, view ? &*view : nullptr);
    for (const nanobind::handle other : others) add_bytes(key, other.ptr());
    add_bytes(key, number), add_bytes(key, default_determinism());
    return key;
  }

  std::unordered_map<std::string, Known, TextHash, std::equal_to<>> known_;
};

}  // namespace cleave::python
