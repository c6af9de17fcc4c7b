// Scales of D that kernels of their own find, behind the product's: such a scale needs more of D than a tile has, or D
// is a convolution's.
#pragma once

#include "call/parameters.h"
#include "inputs/operands.h"

namespace cleave::python {

/// Whether a product's D is quantised so: for out_scale="row", "tensor" and "block_128x128" of any D that is a matrix,
/// and for "block_1x128" where a scale may be of two groups' columns.
bool is_quantized_apart(const GemmInputs& inputs, const GemmOptions& options);

/// `multiply`, and `quantize` of what it returns: (D, scale). `form`: as of multiply.
nanobind::object multiply_and_quantize(GemmInputs inputs, ProductArguments arguments, const CallArguments& call,
                                       const GemmOptions& form, Granularity granularity);

/// The same of a convolution, whose pixels are rows.
class QuantizedPixels {
 public:
  /// What a call asks for beside its convolution.
  using Arguments = Values<arg::Out, arg::OutDtype, arg::OutScale, arg::UseUe8m0, arg::ScaleD, arg::Stream>;

  /// Throws Error for what does not go together.
  explicit QuantizedPixels(const Arguments& arguments);

  /// Whether scales are to be found.
  bool wanted() const { return granularity_.has_value(); }

  /// The type that the convolution leaves to be quantised.
  DType unquantized() const;

  /// (D, what a function makes beside it, scales). `product`: what the convolution returned; `like`: an array of the
  /// user's class.
  nanobind::object quantize(const nanobind::object& product, nanobind::handle like) const;

 private:
  std::optional<Granularity> granularity_;
  nanobind::handle out_;
  DType type_ = DType::i8;
  bool ue8m0_ = false;
};

}  // namespace cleave::python
