// The operators' arguments as types: each states once its name, its type in schemas and in C++, and its default. An
// operator has lists of them, from which its schema follows, and the function that torch calls.
#pragma once

#include <torch/csrc/stable/library.h>

#include <string>
#include <tuple>
#include <vector>

#include "errors.h"
#include "operands/lists.h"

namespace cleave::torch_ops {

/// `T`: the type in C++. An argument without a default is required.
template <Text kName, Text kType, class T, Text kDefault = "">
struct Argument {
  using Parameter = T;
  static constexpr const char* name() { return kName.characters; }
  static std::string declaration() {
    const std::string text = std::string(kType.characters) + " " + kName.characters;
    return kDefault.characters[0] ? text + "=" + kDefault.characters : text;
  }
  T value;
};

/// The arguments of one call, valid as long as torch's.
template <class... Ps>
class Values : public Ps... {
 public:
  explicit Values(typename Ps::Parameter... values) : Ps{values}... {}

  template <class P>
  static constexpr bool has() {
    return std::derived_from<Values, P>;
  }

  template <class P>
  typename P::Parameter get() const {
    return static_cast<const P&>(*this).value;
  }

  /// `target` keeps its value if there is no such argument.
  template <class P, class T>
  void read(T& target) const {
    if constexpr (has<P>()) target = get<P>();
  }
};

struct Operator {
  std::string name, schema;
  BoxedFunction boxed;
};

namespace detail {

template <class Result>
struct ResultText {
  static constexpr const char* text = "Tensor";
};
template <>
struct ResultText<void> {
  static constexpr const char* text = "()";
};
template <>
struct ResultText<std::vector<torch::stable::Tensor>> {
  static constexpr const char* text = "Tensor[]";
};
template <class... Tensors>
struct ResultText<std::tuple<Tensors...>> {
  static constexpr const char* texts[] = {"",
                                          "",
                                          "(Tensor, Tensor)",
                                          "(Tensor, Tensor, Tensor)",
                                          "(Tensor, Tensor, Tensor, Tensor)",
                                          "(Tensor, Tensor, Tensor, Tensor, Tensor)"};
  static constexpr const char* text = texts[sizeof...(Tensors)];
};

template <class Function, class... Ps>
struct Boxed {
  static auto call(typename Ps::Parameter... values) { return Function()(Values<Ps...>(values...)); }
  static constexpr auto* function = &call;
};

}  // namespace detail

/// The operators of torch.ops.cleave.
class Operators {
 public:
  /// `function`, a lambda without captures, takes Values<Ps..., Ks...>. The `Ks` are keyword-only.
  template <class... Ps, class... Ks, class Function>
  void add(const std::string& name, List<Ps...>, List<Ks...>, const Function&) {
    using Boxed = detail::Boxed<Function, Ps..., Ks...>;
    std::vector<std::string> parts{Ps::declaration()...};
    if (sizeof...(Ks) > 0) parts.push_back("*");
    (parts.push_back(Ks::declaration()), ...);
    std::string schema = name + "(";
    for (size_t i = 0; i < parts.size(); ++i) schema += (i ? ", " : "") + parts[i];
    using Result =
        decltype(Boxed::call(std::declval<typename Ps::Parameter>()..., std::declval<typename Ks::Parameter>()...));
    schema += std::string(") -> ") + detail::ResultText<Result>::text;
    list_.push_back({name, std::move(schema), with_errors_of_torch<TORCH_BOX(Boxed::function)>});
  }

  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<Operator> list_;
};

}  // namespace cleave::torch_ops
