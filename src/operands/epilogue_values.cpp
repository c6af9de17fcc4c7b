#include "operands/epilogue_values.h"

#include "base/enumerators.h"
#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "operands/operand.h"

namespace cleave {

EpilogueTensors epilogue_tensors(const EpilogueFunction& function, std::span<const Operand> tensors,
                                 std::span<const double> numbers, std::span<const int64_t> number_places) {
  const auto& inputs = function.inputs();
  if (numbers.size() != number_places.size()) {
    refuse_value("numbers has {} values, but number_places {}; pass the place of each among the inputs", numbers.size(),
                 number_places.size());
  }
  if (tensors.size() + numbers.size() != inputs.size()) {
    refuse_value("inputs has {} tensors and numbers {} values; the epilogue function has {} inputs", tensors.size(),
                 numbers.size(), inputs.size());
  }
  EpilogueTensors read{.function = &function,
                       .inputs = std::vector<EpilogueTensors::Input>(inputs.size()),
                       .outputs = std::vector<std::optional<Operand>>(function.outputs().size() - 1)};
  size_t number = 0, tensor = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [name, shape] = inputs[i];
    if (number == numbers.size() || number_places[number] != int64_t(i)) {
      if (tensor == tensors.size()) {
        refuse_value("number_places has {}; it must be places of inputs, in ascending order", number_places[number]);
      }
      read.inputs[i].tensor = tensors[tensor++];
      continue;
    }
    if (shape != InputShape::scalar) {
      refuse_value("{} is a number, but a {} of the epilogue function; pass a tensor", name, enumerator_name(shape));
    }
    read.inputs[i].number = float32_of(numbers[number++], name.c_str());
  }
  return read;
}

}  // namespace cleave
