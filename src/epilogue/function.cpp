// From the text of a function to the one object that stands for it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>

#include "base/enumerators.h"
#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "epilogue/activations.h"
#include "epilogue/evaluate.h"
#include "epilogue/sums.h"
#include "process/fork.h"

namespace cleave {
namespace {

constexpr size_t kMostNodes = 256;

bool is_name(std::string_view word) {
  const auto letter = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !word.empty() && letter(word[0]) && std::ranges::all_of(word, [&](char c) { return letter(c) || digit(c); });
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<float> number_of(std::string_view word) {
  float number = 0.0f;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

template <class Enum>
std::optional<Enum> enumerator_of(std::string_view name) {
  for (const Enum value : values_of<Enum>) {
    if (enumerator_name(value) == name) return value;
  }
  return std::nullopt;
}

}  // namespace

/// Reads one text, and writes the function anew: values once, in the order in which the outputs need them.
class EpilogueReader {
 public:
  std::unique_ptr<EpilogueFunction> read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (outputs_.empty()) refuse_value("the epilogue function has no output; end it with d = ...");
    write();
    function_->activation_ = activation_of(function_->text());
    function_->evaluator_ = std::make_shared<EpilogueEvaluator>(*function_);
    return std::move(function_);
  }

 private:
  using Node = EpilogueNode;

  template <class... Args>
  [[noreturn]] void refuse_line(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_value("line {} of the epilogue function: {}", line_, fmt::format(format, std::forward<Args>(args)...));
  }

  void read_line(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) return;
    if (words.size() == 2) return read_input(words[0], words[1]);
    if (words.size() < 3 || words[1] != "=") {
      refuse_line("\"{}\" is neither \"<input> <shape>\" nor \"<value> = <operation> ...\"", line);
    }
    const auto reduction = enumerator_of<Reduction>(words[2]);
    if (reduction && *reduction != Reduction::none) return read_reduction(words, *reduction);
    const uint32_t node = read_value(std::span(words).subspan(2));
    if (words[0].starts_with('%')) {
      if (!names_.try_emplace(std::string(words[0]), node).second) refuse_line("{} exists already", words[0]);
      return;
    }
    const size_t colon = std::min(words[0].find(':'), words[0].size());
    const std::string_view name = words[0].substr(0, colon);
    check_output(name);
    std::optional<DType> dtype;
    if (colon < words[0].size()) dtype = from_string<DType>(words[0].substr(colon + 1));
    if (dtype == DType::i32) refuse_line("{} is int32, but functions make floats; take another type", name);
    outputs_.push_back({std::string(name), dtype, node});
  }

  void read_reduction(std::span<const std::string_view> words, Reduction reduction) {
    const std::string_view name = words[0];
    check_output(name);
    if (outputs_.empty()) refuse_line("{} is D, which is not reduced; name D first", name);
    const auto shape = words.size() == 5 ? enumerator_of<InputShape>(words[3]) : std::nullopt;
    if (!shape || *shape == InputShape::matrix) {
      refuse_line("{} takes scalar, row or column and a value: \"{} = {} column %0\"", words[2], name, words[2]);
    }
    outputs_.push_back({std::string(name), DType::f32, operand(words[4]), reduction, *shape});
  }

  void check_output(std::string_view name) const {
    if (!is_name(name)) refuse_line("\"{}\" is no name of an output", name);
    for (const auto& output : outputs_) {
      if (output.name == name) refuse_line("there is an output {} already", name);
    }
    if (outputs_.size() > kMostEpilogueOutputs) {
      refuse_line("{} is one output too many; there may be {} beside D", name, kMostEpilogueOutputs);
    }
  }

  void read_input(std::string_view name, std::string_view shape) {
    const auto known = enumerator_of<InputShape>(shape);
    if (!known) refuse_line("input {} is {}; it must be scalar, row, column or matrix", name, shape);
    if (!is_name(name) || name == name_of_sum(Node::Kind::sum, Gates::none) || number_of(name))
      refuse_line("\"{}\" is no name of an input", name);
    const auto number = uint32_t(function_->inputs_.size());
    if (number == kMostEpilogueInputs) refuse_line("{} is one input too many; there may be {}", name, number);
    if (!names_.try_emplace(std::string(name), add({.kind = Node::Kind::input, .operands = {number}})).second) {
      refuse_line("there is an input {} already", name);
    }
    function_->inputs_.push_back({std::string(name), *known});
  }

  uint32_t read_value(std::span<const std::string_view> words) {
    if (words.size() == 1) return operand(words[0]);
    const auto operation = enumerator_of<Elementwise>(words[0]);
    if (!operation) refuse_line("there is no operation {}", words[0]);
    if (words.size() != 1 + arity(*operation)) {
      refuse_line("{} takes {} values, not {}", words[0], arity(*operation), words.size() - 1);
    }
    Node node{.kind = Node::Kind::operation, .operation = *operation};
    for (size_t i = 1; i < words.size(); ++i) node.operands[i - 1] = operand(words[i]);
    return add(node);
  }

  uint32_t operand(std::string_view word) {
    if (word == name_of_sum(Node::Kind::sum, Gates::none)) return add({.kind = Node::Kind::sum});
    for (const Gates gates : {Gates::halves, Gates::interleaved}) {
      for (const Node::Kind kind : {Node::Kind::gate, Node::Kind::up}) {
        if (word == name_of_sum(kind, gates)) return gated(kind, gates);
      }
    }
    const auto known = names_.find(std::string(word));
    if (known != names_.end()) return known->second;
    const std::optional<float> number = number_of(word);
    if (!number) refuse_line("{} is neither acc nor an input, a value before this line, or a number of float32", word);
    return add({.kind = Node::Kind::constant, .constant = *number});
  }

  uint32_t gated(Node::Kind kind, Gates gates) {
    if (function_->gates_ != Gates::none && function_->gates_ != gates) {
      refuse_line("acc.even or acc.odd is beside acc.gate or acc.up; b's columns take turns, or they are halves");
    }
    function_->gates_ = gates;
    return add({.kind = kind});
  }

  /// The place of a node, which is added unless there is an equal one. NaNs are equal to each other.
  uint32_t add(const Node& node) {
    const auto key = std::tuple(node.kind, node.operation, node.operands[0], node.operands[1], node.operands[2],
                                std::bit_cast<uint32_t>(node.constant));
    const auto [place, added] = places_.try_emplace(key, uint32_t(nodes_.size()));
    if (added) nodes_.push_back(node);
    if (nodes_.size() > kMostNodes) refuse_line("there are more than {} values", kMostNodes);
    return place->second;
  }

  /// The nodes that outputs need, renumbered, and the text.
  void write() {
    std::map<uint32_t, uint32_t> moved;
    const auto move = [&](const auto& self, uint32_t from) -> uint32_t {
      if (const auto known = moved.find(from); known != moved.end()) return known->second;
      Node node = nodes_[from];
      if (node.kind == Node::Kind::operation) {
        for (uint32_t i = 0; i < arity(node.operation); ++i) node.operands[i] = self(self, node.operands[i]);
      }
      function_->nodes_.push_back(node);
      return moved[from] = uint32_t(function_->nodes_.size() - 1);
    };
    for (const auto& output : outputs_) {
      function_->outputs_.push_back(output);
      function_->outputs_.back().node = move(move, output.node);
      function_->reduces_ |= output.reduction != Reduction::none;
    }
    const auto has = [&](Node::Kind kind) {
      return std::ranges::any_of(function_->nodes_, [&](const Node& node) { return node.kind == kind; });
    };
    if (!has(Node::Kind::gate) && !has(Node::Kind::up)) function_->gates_ = Gates::none;
    if (function_->gates_ != Gates::none && has(Node::Kind::sum)) {
      refuse_value("the epilogue function takes acc beside {} or {}; a gated one has no other sums",
                   name_of_sum(Node::Kind::gate, function_->gates_), name_of_sum(Node::Kind::up, function_->gates_));
    }
    write_text();
  }

  void write_text() {
    std::string& text = function_->text_;
    for (const auto& input : function_->inputs_)
      text += fmt::format("{} {}\n", input.name, enumerator_name(input.shape));
    std::vector<std::string> names;
    uint32_t count = 0;
    for (const Node& node : function_->nodes_) {
      switch (node.kind) {
        case Node::Kind::sum:
        case Node::Kind::gate:
        case Node::Kind::up:
          names.emplace_back(name_of_sum(node.kind, function_->gates_));
          break;
        case Node::Kind::input:
          names.push_back(function_->inputs_[node.operands[0]].name);
          break;
        case Node::Kind::constant:
          names.push_back(fmt::format("{}", node.constant));
          break;
        case Node::Kind::operation:
          text += fmt::format("%{} = {}", count, enumerator_name(node.operation));
          for (uint32_t i = 0; i < arity(node.operation); ++i) text += " " + names[node.operands[i]];
          text += "\n";
          names.push_back(fmt::format("%{}", count++));
          break;
      }
    }
    for (const auto& output : function_->outputs_) {
      if (output.reduction != Reduction::none) {
        text += fmt::format("{} = {} {} {}\n", output.name, enumerator_name(output.reduction),
                            enumerator_name(output.shape), names[output.node]);
        continue;
      }
      const std::string type = output.dtype ? fmt::format(":{}", to_string(*output.dtype)) : std::string();
      text += fmt::format("{}{} = {}\n", output.name, type, names[output.node]);
    }
  }

  std::unique_ptr<EpilogueFunction> function_{new EpilogueFunction};
  std::vector<Node> nodes_;
  std::map<std::tuple<Node::Kind, Elementwise, uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> places_;
  std::map<std::string, uint32_t> names_;
  std::vector<EpilogueFunction::Output> outputs_;
  uint32_t line_ = 0;
};

namespace {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

struct Functions {
  ForkSharedMutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const EpilogueFunction>, TextHash, std::equal_to<>> by_text;
};

Functions& functions() {
  static constinit Lazy<Functions> all;
  return all.get();
}

}  // namespace

const EpilogueFunction& epilogue_function(std::string_view text) {
  Functions& all = functions();
  {
    const std::lock_guard lock(all.mutex);  // of canonical texts, which operators of frameworks are called with
    if (const auto known = all.by_text.find(text); known != all.by_text.end()) return *known->second;
  }
  std::unique_ptr<const EpilogueFunction> made = EpilogueReader().read(text);
  const std::lock_guard lock(all.mutex);
  const std::string key = made->text();
  return *all.by_text.try_emplace(key, std::move(made)).first->second;
}

}  // namespace cleave
