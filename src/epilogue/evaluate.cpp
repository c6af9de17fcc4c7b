#include "epilogue/evaluate.h"

#include <algorithm>

#include "base/enumerators.h"
#include "cleave/core/elementwise.h"

namespace cleave {
namespace {

constexpr uint32_t kVector = 8;  // values at once: a loop of a fixed length becomes vector instructions

template <Elementwise operation>
void apply_to_line(uint32_t count, const float* x, const float* y, const float* z, float* result) {
  for (uint32_t j = 0; j < count; j += kVector) {
    float values[kVector];
    for (uint32_t i = 0; i < kVector; ++i) {
      values[i] =
          apply(operation, x[j + i], arity(operation) > 1 ? y[j + i] : 0.0f, arity(operation) > 2 ? z[j + i] : 0.0f);
    }
    std::copy_n(values, kVector, result + j);
  }
}

}  // namespace

EpilogueEvaluator::EpilogueEvaluator(const EpilogueFunction& function) {
  using Kind = EpilogueNode::Kind;
  const auto& nodes = function.nodes();
  // The step after which nobody reads a value: its line is free then. An output's never is.
  std::vector<size_t> last_use(nodes.size(), 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != Kind::operation) continue;
    for (uint32_t k = 0; k < arity(nodes[i].operation); ++k) last_use[nodes[i].operands[k]] = i;
  }
  for (const auto& output : function.outputs()) last_use[output.node] = nodes.size();

  std::vector<Place> places;
  std::vector<uint32_t> free_lines;
  const auto take_line = [&] {
    if (free_lines.empty()) return lines_++;
    const uint32_t line = free_lines.back();
    free_lines.pop_back();
    return line;
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    const EpilogueNode& node = nodes[i];
    switch (node.kind) {
      case Kind::sum:
      case Kind::gate:
        places.push_back({Place::Kind::sums});
        break;
      case Kind::up:
        places.push_back({Place::Kind::ups});
        break;
      case Kind::input:
        places.push_back({Place::Kind::input, node.operands[0]});
        break;
      case Kind::constant:
        constants_.emplace_back(lines_, node.constant);
        places.push_back({Place::Kind::scratch, lines_++});
        break;
      case Kind::operation: {
        Step step;
        dispatch(node.operation, [&]<Elementwise operation>() { step.apply = &apply_to_line<operation>; });
        for (uint32_t k = 0; k < arity(node.operation); ++k) {
          const uint32_t from = node.operands[k];
          step.operands[k] = places[from];
          const bool seen = std::find(node.operands, node.operands + k, from) != node.operands + k;
          if (!seen && last_use[from] == i && nodes[from].kind == Kind::operation)
            free_lines.push_back(places[from].number);
        }
        step.result = {Place::Kind::scratch, take_line()};
        places.push_back(step.result);
        steps_.push_back(step);
        break;
      }
    }
  }
  for (const auto& output : function.outputs()) outputs_.push_back(places[output.node]);
}

std::vector<float> EpilogueEvaluator::scratch() const {
  std::vector<float> scratch(size_t(lines_) * kEvaluatedLanes);
  for (const auto& [number, value] : constants_)
    std::fill_n(scratch.begin() + number * kEvaluatedLanes, kEvaluatedLanes, value);
  return scratch;
}

void EpilogueEvaluator::operator()(uint32_t count, const float* sums, const float* ups, const float* const* inputs,
                                   float* const* outputs, std::vector<float>& scratch) const {
  const auto line = [&](uint32_t number) { return scratch.data() + size_t(number) * kEvaluatedLanes; };
  const auto find = [&](const Place& place) -> const float* {
    switch (place.kind) {
      case Place::Kind::sums:
        return sums;
      case Place::Kind::ups:
        return ups;
      case Place::Kind::input:
        return inputs[place.number];
      case Place::Kind::scratch:
        break;
    }
    return line(place.number);
  };
  for (const Step& step : steps_)
    step.apply(count, find(step.operands[0]), find(step.operands[1]), find(step.operands[2]), line(step.result.number));
  // D's last: it may lie where the sums do.
  for (size_t i = outputs_.size(); i-- > 0;) std::copy_n(find(outputs_[i]), count, outputs[i]);
}

}  // namespace cleave
