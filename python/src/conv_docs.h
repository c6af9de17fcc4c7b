// Docstrings of the convolutions; conv.cpp puts words for 1 to 3 axes where braces call for them.
#pragma once

namespace cleave::python {

inline constexpr const char* kConvDoc =
    R"(The convolution of images with filters, as torch's: an implicit product, nothing is unfolded.

y = activation(alpha * conv(input, weight) + beta * c + bias), where filters are not turned round.

Args:
    input: [N, C, {image}]; float16, bfloat16, float32 (see `precision`), an 8-bit float or
        int8, with sums in float32, of int8 exact in int32. In memory [N, {image}, C], torch's
        {format}: the channels of a pixel are neighbours, its pixels equally far apart. So
        slices of the channels of such an array are taken without a copy, too; other libraries'
        NHWC arrays are passed with their axes exchanged.
    weight: [K, C / groups, {filter}], of input's dtype, of 8-bit floats of either; in memory
        [K, {filter}, C / groups], packed but for the distance of filters.
    bias: [K], contiguous; float16, bfloat16 or float32.
    stride, dilation: 1 or more, one number or one for each of {image}.
    padding: the zeros around an image: one number, one for each of {image}, each a number or a pair
        (before, after); "valid" for none; "same", with a stride of 1, for as many outputs as
        pixels (an odd one more after, as torch has it).
    groups: how many the channels and filters are cut into, each of a convolution of its own.
    c: of y's shape and order, float16, bfloat16 or float32, to int32 y int32; may be `out` itself.
        Not read if beta is 0.
    alpha, beta: numbers. By default beta is 1 with a `c`, and 0 without.
    activation: as in `gemm`, but "swiglu".
    epilogue: a function made by `cleave.epilogue`, called with its inputs: what is done to the sums
        instead of an activation. Rows are channels' values, [K] or [1, K, ...] with ones; columns
        pixels', [N, 1, {output}]; matrices have y's shape. Pixels are equally far apart, in y's order.
    out: where y goes, in the order of input, sharing no memory with it, weight or bias.
    out_dtype: y's dtype if there is no `out`: any float or int8, by default input's; of 8-bit floats
        bfloat16, of int8 int32, which no other has.
    convert: True to copy arrays in another order of memory, on their framework's current stream,
        which are refused otherwise. What goes to such an `out`, of images whose rows are unevenly
        spaced, say, is made in a new array, and copied to it.

    split_k_mode, split_k_slices (from 1 to C / groups times the filter's taps), deterministic,
    kernel, precision, stream and workspace are those of `gemm`.

Returns:
    `out`, or a new array [N, K, {output}] of input's framework on its device, in the same order.

Raises:
    TypeError, ValueError, cleave.CudaError: as `gemm`; also for outputs of size zero.

Empty arrays are served. Results are repeatable bit by bit. Safe in CUDA graphs once the same
convolution has run, or was prepared, on that stream. There is no autograd formula here (see
`cleave.torch`): an operand that requires grad is refused while grad mode is on.)";

inline constexpr const char* kScaledConvDoc =
    R"(The convolution of 8-bit images with 8-bit filters, scales and all (W8A8):

y = activation(alpha * conv(scale_a * input, scale_b * weight) + beta * c + bias).

Args:
    input: [N, C, {image}]; an 8-bit float or int8, in {format}. Channels in multiples of 16
        (128 a group where there are several) are what tensor cores read by TMA; others are served
        by the portable kernel.
    weight: [K, C / groups, {filter}]; int8 if input is, else either 8-bit float.
    scale_a: float32, one value for all of input: a pixel meets many outputs.
    scale_b: float32, one value for all of weight, or one for each filter: [K], contiguous. The scales
        are read on the device. None for both: there are none.
    out_dtype: y's dtype if there is no `out`: any float or int8, by default bfloat16.
    scale_d, amax, use_fast_accum: those of `scaled_gemm`: y of 8 bits is stored as y * (1 / scale_d), so
        that the next convolution reads it as it is.

    The other arguments are those of `{name}`. A padding of (before, 0) along an axis makes a causal
    convolution of it.

Returns:
    `out`, or a new array of input's framework on its device, in {format}.

Raises as `{name}` does, and is as repeatable and safe in CUDA graphs: replays follow the contents
of every array, scales too.)";

inline constexpr const char* kConvDgradDoc =
    R"(The gradient of `{name}` by its input, of any stride.

dx = activation(alpha * dgrad(grad_output, weight) + beta * c + bias). Pixels that no output saw
become activation(beta * c + bias), or what an epilogue function makes of the latter.

Args:
    input_size: (N, C, {image}), the shape of the input.
    weight: [K, C / groups, {filter}]; float16, bfloat16 or float32.
    grad_output: [N, K, {output}], of weight's dtype, in {format}.
    bias: [C], one value for each channel of dx.
    c, out: of dx's shape, [N, C, {image}].
    division: how kernels find the coordinates of pixels: "fast" multiplies and shifts, "plain"
        divides, "fast_load" and "fast_store" do the former in one place only; "auto" goes by
        measurements.

    The other arguments, orders of memory, errors, repeatability and graph safety are those of
    `{name}`; along each axis strides count up to the size of the
    image; their product is at most 65536.

Returns:
    `out`, or a new array of grad_output's framework on its device, in {format}.)";

inline constexpr const char* kConvWgradDoc =
    R"(The gradient of `{name}` by its weight: dw = alpha * wgrad(grad_output, input) + beta * c.

Args:
    input: [N, C, {image}]; float16, bfloat16 or float32.
    weight_size: (K, C / groups, {filter}), the shape of the weight.
    grad_output: [N, K, {output}], of input's dtype, in {format}.
    accumulate: True to add to `out`: c is `out` (dw's, of several).
    epilogue: as in `{name}`, but rows are taps' and channels' values, [1, C / groups, {filter}] in
        the order of a weight, and columns filters': [K] or [K, 1, ...] with ones.
    c, out: of dw's shape, [K, C / groups, {filter}], in the order that `{name}` takes weights in.

    The other arguments, orders of memory, errors, repeatability and graph safety are those of
    `{name}`. K, which split_k_slices cuts, are the pixels of the output.

Returns:
    `out`, or a new array of grad_output's framework on its device, in {format}.)";

inline constexpr const char* kConvTransposeDoc =
    R"(The transposed convolution, torch's: what `{name}_dgrad` is, as a layer of its own.

Args:
    input: [N, C, {output}]; float16, bfloat16 or float32, in {format}.
    weight: [C, K / groups, {filter}], of input's dtype; in memory [C, {filter}, K / groups].
    bias: [K], contiguous.
    padding: numbers, as in `{name}`: what is left away of the output.
    output_padding: less than the stride: pixels that the output has more after its end.
    c, out: of the output's shape, [N, K, {image}], each of {image} being (its input's - 1) * stride
        - the padding before and after + dilation * (its filter's - 1) + output_padding + 1.

    The other arguments, orders of memory, errors, repeatability and graph safety are those of
    `{name}_dgrad`.

Returns:
    `out`, or a new array of input's framework on its device, in {format}.)";

inline constexpr const char* kPlanConvDoc =
    R"(Plans a convolution, or one of its gradients, without running it.

kind and what a and b are, here and in `GemmPlan.run`; size is the shape of what is made:

    "fprop": a is input,       b is weight             (`{name}`)
    "dgrad": a is grad_output, b is weight, size input_size  (`{name}_dgrad`)
    "wgrad": a is grad_output, b is input,  size weight_size (`{name}_wgrad`)

The other arguments, and the errors, are those of these functions, of "fprop" also those of
`{scaled}`; division, of every kind, is as in
`{name}_dgrad`. Only shapes, strides, dtypes, device and alignment of the arrays matter. Compiles
nothing.)";

inline constexpr const char* kPlanConvProblemDoc =
    R"(Plans a convolution of packed arrays from its sizes alone.

Takes images [images, channels, *size], size having 1 to 3 numbers, and filters [filters, channels /
groups, *filter_size]. kind: "fprop", or "dgrad" and "wgrad", its gradients. bias: "none" or "row".
scaling: the scales of 8-bit operands: "none", "tensor" (one of all filters) or "row" (one of each filter).
epilogue: a function called with the types of its arrays, as for `plan_problem`. device: "cpu", "cuda",
"cuda:<index>", or "h100" or "h200" to plan for one on any machine.

The other arguments, and the errors, are those of `conv2d`; division is as in `conv2d_dgrad`.)";

}  // namespace cleave::python
