// Docstrings of the convolutions; conv.cpp fills in the words for 1 to 3 axes in braces.
#pragma once

namespace cleave::python {

inline constexpr const char* kConvDoc =
    R"(The convolution of images with filters, as torch defines it: an implicit product, nothing is unfolded.

y = activation(alpha * conv(input, weight) + beta * c + bias), a cross-correlation, as in torch.

Args:
    input: [N, C, {image}]; float16, bfloat16, float32 (see `precision`) or an 8-bit float,
        accumulated in float32, or int8, accumulated exactly in int32. In memory [N, {image}, C],
        torch's {format}: the channels of a pixel are neighbours, and its pixels equally far apart,
        so that slices of the channels of such an array are taken without a copy as well. Pass
        other libraries' NHWC arrays with their axes permuted.
    weight: [K, C / groups, {filter}], of input's dtype (either of the 8-bit floats if input is one);
        in memory [K, {filter}, C / groups], packed but for the distance between filters.
    bias: [K], contiguous; float16, bfloat16 or float32.
    stride, dilation: 1 or more; one number, or one for each of {image}.
    padding: the zeros around an image: one number, or one for each of {image}, each a number or a pair
        (before, after); "valid" for none; "same", with a stride of 1, for as many outputs as
        pixels (an odd one more after, as in torch).
    groups: into how many independent convolutions the channels and filters are cut.
    c: of y's shape and memory order; float16, bfloat16 or float32, or int32 if y is int32. May be
        `out` itself. Not read if beta is 0.
    alpha, beta: numbers. beta defaults to 1 with a `c` and to 0 without one.
    activation: as in `gemm`, but not "swiglu".
    epilogue: a function made by `cleave.epilogue`, called with its inputs; it is applied to the sums
        instead of an activation. Rows have a value per channel, [K] or [1, K, ...] with ones; columns
        one per pixel, [N, 1, {output}]; matrices have y's shape, with pixels equally far apart, in y's
        order.
    out: where y is written, in the memory order of input. Must not overlap input, weight or bias.
    out_dtype: y's dtype if there is no `out`: any float or int8, and int32 for int8 input alone.
        Defaults to input's dtype, except bfloat16 for 8-bit floats and int32 for int8.
    out_scale: quantises y to int8 or an 8-bit float (see out_dtype), and returns (y, scale), y being
        scale * what is returned: "tensor" finds one scale, as a next `{scaled}` reads it, "row" one for
        each pixel, "block_1x128" one for every 128 channels of a pixel. scale is float32, of y's shape with
        1 or ceil(K / 128) channels. Two launches: the convolution (in float32, but in bfloat16 for an 8-bit
        float by "tensor" or "row"), and `quantize`. Plans do not have it.
    use_ue8m0: round those scales up to powers of two.
    convert: True copies arrays that are in another memory order, on their framework's current stream,
        instead of refusing them. If `out` is in another order (images whose rows are unevenly spaced,
        say), y is computed in a new array and copied to it.

    split_k_mode, split_k_slices (from 1 to C / groups times the filter's taps), deterministic, sum_order,
    kernel, precision, stream and workspace are those of `gemm`.

Returns:
    `out`, or a new array [N, K, {output}] of input's framework on its device, in the same order. With
    out_scale a tuple: that, a function's other outputs, and the scales.

Raises:
    TypeError, ValueError, cleave.CudaError: as `gemm`; also for outputs of size zero.

Empty arrays are served. Results are repeatable bit for bit. Safe in CUDA graphs once the same
convolution has run, or was prepared, on that stream. There is no autograd formula here (see
`cleave.torch`): an operand that requires grad is refused while grad mode is on.)";

inline constexpr const char* kScaledConvDoc =
    R"(The convolution of 8-bit images with 8-bit filters, scales included (W8A8):

y = activation(alpha * conv(scale_a * input, scale_b * weight) + beta * c + bias).

Args:
    input: [N, C, {image}]; an 8-bit float or int8, in {format}. Tensor cores read channels in
        multiples of 16 (of 128 per group if there are several) by TMA; the portable kernel serves
        others.
    weight: [K, C / groups, {filter}]; int8 if input is, else either 8-bit float.
    scale_a: float32, one value for all of input, since every pixel contributes to many outputs.
    scale_b: float32, one value for all of weight, or one for each filter: [K], contiguous. The scales
        are read on the device. None for both: the operands are unscaled.
    out_dtype: y's dtype if there is no `out`: any float or int8. Defaults to bfloat16.
    scale_d, amax, use_fast_accum: those of `scaled_gemm`. An 8-bit y is stored as y * (1 / scale_d), so
        that the next convolution reads it as it is.

    The other arguments are those of `{name}`. A padding of (before, 0) along an axis makes the
    convolution causal along it.

Returns:
    `out`, or a new array of input's framework on its device, in {format}.

Raises as `{name}` does, and is as repeatable and as safe in CUDA graphs: replays read the current
contents of every array, scales included.)";

inline constexpr const char* kConvDgradDoc =
    R"(The gradient of `{name}` with respect to its input, of any stride.

dx = activation(alpha * dgrad(grad_output, weight) + beta * c + bias). Pixels that no output depends on
become activation(beta * c + bias), or what an epilogue function makes of beta * c + bias.

Args:
    input_size: (N, C, {image}), the shape of the input.
    weight: [K, C / groups, {filter}]; float16, bfloat16 or float32.
    grad_output: [N, K, {output}], of weight's dtype, in {format}.
    bias: [C], one value for each channel of dx.
    c, out: of dx's shape, [N, C, {image}].
    division: how kernels find the coordinates of pixels: "fast" multiplies and shifts, "plain"
        divides, "fast_load" and "fast_store" are fast in one place only; "auto" goes by measurements.

    The other arguments, memory orders, errors, repeatability and graph safety are those of
    `{name}`. Along each axis the stride may be as large as the image; the product of the strides is
    at most 65536.

Returns:
    `out`, or a new array of grad_output's framework on its device, in {format}.)";

inline constexpr const char* kConvWgradDoc =
    R"(The gradient of `{name}` with respect to its weight: dw = alpha * wgrad(grad_output, input) + beta * c.

Args:
    input: [N, C, {image}]; float16, bfloat16 or float32.
    weight_size: (K, C / groups, {filter}), the shape of the weight.
    grad_output: [N, K, {output}], of input's dtype, in {format}.
    accumulate: True adds to `out`, which becomes c (to dw if there are several outputs).
    epilogue: as in `{name}`, but rows have a value for each tap and channel, [1, C / groups, {filter}]
        in the memory order of a weight, and columns one for each filter: [K] or [K, 1, ...] with ones.
    c, out: of dw's shape, [K, C / groups, {filter}], in the memory order of `{name}`'s weight.

    The other arguments, memory orders, errors, repeatability and graph safety are those of
    `{name}`. The dimension that split_k_slices cuts is the pixels of the output.

Returns:
    `out`, or a new array of grad_output's framework on its device, in {format}.)";

inline constexpr const char* kConvTransposeDoc =
    R"(The transposed convolution, as torch defines it: `{name}_dgrad` as a layer of its own.

Args:
    input: [N, C, {output}]; float16, bfloat16 or float32, in {format}.
    weight: [C, K / groups, {filter}], of input's dtype; in memory [C, {filter}, K / groups].
    bias: [K], contiguous.
    padding: numbers, as in `{name}`: how much of the output is cut off.
    output_padding: how many pixels are added after the output's end; less than the stride.
    c, out: of the output's shape, [N, K, {image}], each of {image} being (its input's - 1) * stride
        - the padding before and after + dilation * (its filter's - 1) + output_padding + 1.

    The other arguments, memory orders, errors, repeatability and graph safety are those of
    `{name}_dgrad`.

Returns:
    `out`, or a new array of input's framework on its device, in {format}.)";

inline constexpr const char* kPlanConvDoc =
    R"(Plans a convolution, or one of its gradients, without running it.

kind decides what a and b are, here and in `GemmPlan.run`; size is the shape of the result:

    "fprop": a is input,       b is weight             (`{name}`)
    "dgrad": a is grad_output, b is weight, size input_size  (`{name}_dgrad`)
    "wgrad": a is grad_output, b is input,  size weight_size (`{name}_wgrad`)

The other arguments, and the errors, are those of these functions, and for "fprop" also those of
`{scaled}`; division, of every kind, is as in `{name}_dgrad`. Only shapes, strides, dtypes, device and
alignment of the arrays matter. Compiles nothing.)";

inline constexpr const char* kPlanConvProblemDoc =
    R"(Plans a convolution of packed arrays from its sizes alone.

Args:
    images, channels, size: of images [images, channels, *size], where size has 1 to 3 numbers.
    filters, filter_size: of filters [filters, channels / groups, *filter_size].
    kind: "fprop", or its gradients "dgrad" and "wgrad".
    bias: "none" or "row".
    scaling: what shares a scale of 8-bit operands: "none" (they are unscaled), "tensor" (all filters)
        or "row" (each filter has its own).
    epilogue: a function called with the dtypes of its arrays, as for `plan_problem`.
    device: "cpu", "cuda", "cuda:<index>", or "h100" or "h200" to plan for one on any machine.

The other arguments, and the errors, are those of `conv2d`; division is as in `conv2d_dgrad`.)";

}  // namespace cleave::python
