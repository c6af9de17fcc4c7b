// The arguments that operators share, each defined once.
#pragma once

#include "name.h"
#include "schema.h"
#include "tensor.h"

namespace cleave::torch_ops {

using MaybeTensor = std::optional<Tensor>;
/// Sizes and geometry of convolutions: a list may have one number for all axes, and padding two for
/// each, those before the axes first.
using Integers = std::vector<int64_t>;

template <Text kName>
using TensorArgument = Argument<kName, "Tensor", const Tensor&>;
/// One that may be None, but must be passed.
template <Text kName>
using NullableArgument = Argument<kName, "Tensor?", const MaybeTensor&>;
template <Text kName>
using MaybeTensorArgument = Argument<kName, "Tensor?", const MaybeTensor&, "None">;
template <Text kName, class Enum, Text kDefault>
using NameArgument = Argument<kName, "str", Name<Enum, kName>, kDefault>;

namespace arg {

using A = TensorArgument<"a">;
using B = TensorArgument<"b">;
using Bias = MaybeTensorArgument<"bias">;
using C = MaybeTensorArgument<"c">;
using Out = Argument<"out", "Tensor(a!)", const Tensor&>;
using Amax = Argument<"amax", "Tensor(b!)?", const MaybeTensor&, "None">;
using ScaleD = MaybeTensorArgument<"scale_d">;
/// An epilogue function's text, its inputs that are tensors, those that are numbers, and the latter's places among all.
/// `backward` is for autograd, which is Python's: the text of what it calls instead of the derivative, or "".
using Epilogue = Argument<"epilogue", "str", FunctionText>;
using EpilogueInputs = Argument<"inputs", "Tensor[]", const std::vector<Tensor>&>;
using Numbers = Argument<"numbers", "float[]", const std::vector<double>&, "[]">;
using NumberPlaces = Argument<"number_places", "int[]", const std::vector<int64_t>&, "[]">;
using Backward = Argument<"backward", "str", FunctionText, "''">;
using Azp = MaybeTensorArgument<"azp">;
using AzpAdj = MaybeTensorArgument<"azp_adj">;
using Packed = TensorArgument<"packed">;
using Scales = TensorArgument<"scales">;
using OutFeatures = Argument<"out_features", "int", int64_t>;
using GroupSize = Argument<"group_size", "int", int64_t>;
using Format = NameArgument<"format", WeightFormat, "'int4'">;
using Offs = MaybeTensorArgument<"offs">;
using Indptr = MaybeTensorArgument<"indptr">;
using Starts = MaybeTensorArgument<"starts">;
using Sizes = MaybeTensorArgument<"sizes">;
using Counts = MaybeTensorArgument<"counts">;
using Gather = MaybeTensorArgument<"gather">;

using Alpha = Argument<"alpha", "float", double, "1.0">;
using Beta = Argument<"beta", "float?", std::optional<double>, "None">;
using Activation = NameArgument<"activation", cleave::Activation, "'none'">;
using OutDtype = Argument<"out_dtype", "ScalarType?", std::optional<ScalarType>, "None">;
using OutScale = NameArgument<"out_scale", Granularity, "'block_1x128'">;
using ScaleMajor = NameArgument<"scale_major", Major, "'k'">;
using UseUe8m0 = Argument<"use_ue8m0", "bool", bool, "False">;
using Alignment = Argument<"alignment", "int?", std::optional<int64_t>, "None">;
using SlotsOfRow = Argument<"top_k", "int", int64_t, "1">;
using ZeroRest = Argument<"zero_rest", "bool?", std::optional<bool>, "None">;
using UseFastAccum = Argument<"use_fast_accum", "bool", bool, "False">;
using StaticB = Argument<"static_b", "bool", bool, "False">;
using SplitKMode = NameArgument<"split_k_mode", cleave::SplitKMode, "'auto'">;
using SplitKSlices = Argument<"split_k_slices", "int?", std::optional<int64_t>, "None">;

}  // namespace arg

using Scalars = List<arg::Alpha, arg::Beta, arg::Activation>;
using SplitK = List<arg::SplitKMode, arg::SplitKSlices>;
/// What forms that return D and its scales say about these.
using FoundScales = List<arg::OutScale, arg::ScaleMajor, arg::UseUe8m0>;
using Function = List<arg::Epilogue, arg::EpilogueInputs, arg::Numbers, arg::NumberPlaces, arg::Backward>;

// Each file adds the operators of its own.
void add_gemm(Operators& operators);
void add_scaled_gemm(Operators& operators);
void add_mixed_gemm(Operators& operators);
void add_grouped_gemm(Operators& operators);
void add_conv(Operators& operators);
void add_lora(Operators& operators);
void add_quantize(Operators& operators);
void add_moe(Operators& operators);
void add_route(Operators& operators);
void add_router_logits(Operators& operators);

}  // namespace cleave::torch_ops
