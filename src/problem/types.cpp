#include "cleave/names.h"
#include "problem/problem.h"
#include "problem/rules.h"

namespace cleave {
namespace {

void check_pair(DType a, DType b, Messages& out) {
  if (a == DType::i32 || b == DType::i32) {
    out.add("a is {} and b is {}, but int32 is a type of c and d only; pass operands of int8 or of a float type",
            to_string(a), to_string(b));
  } else if (a != b && !(is_fp8(a) && is_fp8(b))) {
    out.add("a is {} and b is {}; they must be equal, or both be 8-bit floats. Convert one of them", to_string(a),
            to_string(b));
  }
}

void check_bias(DType type, Messages& out) {
  if (is_wide_float(type)) return;
  out.add("bias is {}; it must be float16, bfloat16 or float32. Convert bias", to_string(type));
}

/// C is added in float32, as it is; to integers, as an integer.
void check_c(DType type, DType d, Messages& out) {
  if (type == d || (is_wide_float(type) && d != DType::i32)) return;
  if (d == DType::i32) {
    out.add("c is {}, but d is int32, to which only a c of int32 is added. Convert c, or pass d of a float type",
            to_string(type));
  } else {
    out.add("c is {}; it must be float16, bfloat16 or float32, or of d's type, {}. Convert c", to_string(type),
            to_string(d));
  }
}

void check_types_of_conv(const GemmProblem& p, Messages& out) {
  if (p.conv.kind == Conv::none) return;
  const DType type = p.a.dtype;
  if (p.conv.kind == Conv::fprop) return;
  if (size_of(type) == 1) {
    out.add("a is {}, which only fprop serves, but this is {}; convert a and b to a wider float type", to_string(type),
            to_string(p.conv.kind));
  }
  if (size_of(p.d.dtype) == 1) {
    out.add("d is {}, which only fprop stores, but this is {}; quantise in a step of its own", to_string(p.d.dtype),
            to_string(p.conv.kind));
  }
}

}  // namespace

void check_types(const GemmProblem& p, Messages& out) {
  check_pair(p.a.dtype, p.b.dtype, out);
  if (p.has_c) check_c(p.c.dtype, p.d.dtype, out);
  if (p.bias != Bias::none) check_bias(p.bias_dtype, out);
  if (p.d.dtype == DType::i32 && p.a.dtype != DType::i8) {
    out.add("d is int32, but a is {}; int32 takes exact sums, which only int8 operands have. Pass d of a float type",
            to_string(p.a.dtype));
  }
  check_types_of_conv(p, out);
}

}  // namespace cleave
