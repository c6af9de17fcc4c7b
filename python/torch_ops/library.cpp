// torch.ops.cleave.
//
// The `out` forms return nothing. torch before 2.13 traces no operator that returns its argument,
// and later ones, if it has the tag `out`, none with optional arguments that it writes to. Arguments
// that autograd differentiates are not keyword-only, since it finds them by their position; of an
// operator that has gradients no tensor may be keyword-only.
//
// In eager calls torch looks up, by name, each argument that has no position in the call, and pays
// for a dict if there is a keyword. So what models call most has few arguments, none of them
// keyword-only: scaled_gemm, grouped_gemm and convolutions, which leave the rarer ones to their
// overloads `full`.
// torch takes the first overload that fits, in the order of definition.
#include "arguments.h"

namespace cleave::torch_ops {
namespace {

Operators all() {
  Operators operators;
  add_gemm(operators);
  add_scaled_gemm(operators);
  add_mixed_gemm(operators);
  add_grouped_gemm(operators);
  add_conv(operators);
  add_lora(operators);
  add_quantize(operators);
  add_moe(operators);
  add_route(operators);
  add_router_logits(operators);
  return operators;
}

/// One set of functions: tensors say whether they are on the CPU or a GPU.
void implement(torch::stable::detail::StableLibrary& m) {
  for (const Operator& op : all()) m.impl(op.name.c_str(), op.boxed);
}

}  // namespace
}  // namespace cleave::torch_ops

STABLE_TORCH_LIBRARY(cleave, m) {
  for (const cleave::torch_ops::Operator& op : cleave::torch_ops::all()) m.def(op.schema.c_str());
}
STABLE_TORCH_LIBRARY_IMPL(cleave, CPU, m) {
  cleave::torch_ops::implement(m);
}
STABLE_TORCH_LIBRARY_IMPL(cleave, CUDA, m) {
  cleave::torch_ops::implement(m);
}
