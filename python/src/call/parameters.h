// The parameters of all functions on arrays, each defined once, and the lists that functions share.
#pragma once

#include "call/parameter.h"

namespace cleave::python {

namespace arg {

// Arrays
using A = Array<"a">;
using B = Array<"b">;
using Bias = MaybeArray<"bias">;
using C = MaybeArray<"c">;
using Out = MaybeArray<"out">;
using Epilogue = Other<"epilogue", "object", "None">;
using ScaleA = MaybeArray<"scale_a">;
using ScaleB = MaybeArray<"scale_b">;
using ScaleD = MaybeArray<"scale_d">;
using ScaleOut = MaybeArray<"scale_out">;
using Amax = MaybeArray<"amax">;
using Azp = MaybeArray<"azp">;
using AzpAdj = MaybeArray<"azp_adj">;
using Scales = MaybeArray<"scales">;
using Zeros = MaybeArray<"zeros">;
using GlobalScale = MaybeArray<"global_scale">;
using Offs = MaybeArray<"offs">;
using Indptr = MaybeArray<"indptr">;
using Starts = MaybeArray<"starts">;
using Sizes = MaybeArray<"sizes">;
using Counts = MaybeArray<"counts">;
using Gather = MaybeArray<"gather">;

// What happens to the product
using Alpha = Number<"alpha", "1.0">;
using Beta = Number<"beta", "None", "float | None">;
using Activation = OneOf<"activation", cleave::Activation, "'none'">;
using OutDtype = Dtype<"out_dtype", "None">;
using OutScale = OneOf<"out_scale", cleave::Granularity, "None", "str | None">;
using ScaleMajor = OneOf<"scale_major", Major, "'k'">;
using UseUe8m0 = Flag<"use_ue8m0", "False">;
using Alignment = Integer<"alignment", "None", "int | None", "an integer or None">;
using ExpectedM = Integer<"expected_m", "None", "int | None", "an integer or None">;
using SlotsOfRow = Integer<"top_k", "1">;
using ZeroRest = Flag<"zero_rest", "None", "bool | None">;
using CheckOffsets = Flag<"check_offsets", "False">;
using Accumulate = Flag<"accumulate", "False">;

// A packed weight
using Packed = Array<"packed">;
using OutFeatures = Integer<"out_features">;
using GroupSize = Integer<"group_size">;
using Format = OneOf<"format", WeightFormat, "'int4'">;
using WeightKind = OneOf<"weights", WeightFormat, "'none'">;

// How it is computed
using UseFastAccum = Flag<"use_fast_accum", "False">;
using StaticB = Flag<"static_b", "False">;
using SplitKMode = OneOf<"split_k_mode", cleave::SplitKMode, "'auto'">;
using SplitKSlices = Integer<"split_k_slices", "None", "int | None", "an integer of 1 or more, or None">;
struct Deterministic : Parameter<"deterministic", "bool | str", "True"> {
  static Determinism parse(nanobind::handle value) { return parse_determinism(value, name()); }
};
struct SumOrder : Parameter<"sum_order", "str | None", "None"> {
  static Determinism parse(nanobind::handle value) { return parse_sum_order(value, name()); }
};
using Kernel = OneOf<"kernel", KernelFamily, "'auto'">;
using Precision = OneOf<"precision", cleave::Precision, "'tf32'">;

// Where
using Stream = Other<"stream", "object", "None">;
using Workspace = Other<"workspace", "object", "None">;

}  // namespace arg

using Bounds = List<arg::Indptr, arg::Starts, arg::Sizes, arg::Counts, arg::Alignment>;
using Scalars = List<arg::Alpha, arg::Beta>;
using SplitK = List<arg::SplitKMode, arg::SplitKSlices, arg::Deterministic, arg::SumOrder, arg::Kernel>;
using Place = List<arg::Stream, arg::Workspace>;

/// Scales of D that are computed.
using FoundScales = List<arg::OutScale, arg::ScaleOut, arg::ScaleMajor, arg::UseUe8m0>;

/// The arrays of a packed weight besides its codes.
using WeightArrays = List<arg::Scales, arg::Zeros, arg::GlobalScale>;

/// The parameters that a plan leaves to its calls.
using OfCalls = Concat<Scalars, List<arg::CheckOffsets>, Place>;

/// All arrays of products.
using GemmInputs = Values<arg::A, arg::B, arg::Bias, arg::C, arg::Out, arg::Epilogue, arg::ScaleA, arg::ScaleB,
                          arg::ScaleD, arg::ScaleOut, arg::Amax, arg::Azp, arg::AzpAdj, arg::Scales, arg::Zeros,
                          arg::GlobalScale, arg::Offs, arg::Indptr, arg::Starts, arg::Sizes, arg::Counts, arg::Gather>;

/// All parameters of products that are not arrays, and belong to a plan.
using ProductArguments =
    Values<arg::Activation, arg::OutDtype, arg::OutScale, arg::ScaleMajor, arg::UseUe8m0, arg::Alignment,
           arg::ExpectedM, arg::SlotsOfRow, arg::ZeroRest, arg::UseFastAccum, arg::StaticB, arg::SplitKMode,
           arg::SplitKSlices, arg::Deterministic, arg::SumOrder, arg::Kernel, arg::Precision>;

using CallArguments = Values<arg::Alpha, arg::Beta, arg::CheckOffsets, arg::Stream, arg::Workspace>;

}  // namespace cleave::python
