// gemm, scaled_gemm and grouped_gemm as custom calls of XLA's foreign function interface.
//
// A call's buffers are as many as its attribute `operands` names, in that order. Buffers have no strides; those that
// `transposed` names hold the rows of what is multiplied as columns.
//
// Workspaces are the library's pooled ones, of the stream, whose counters stay zero from launch to launch: XLA's
// scratch memory would have to be zeroed by a kernel of its own each time. So calls are not marked as fit for command
// buffers: XLA captures those anew wherever a buffer has moved, and the pool keeps a workspace for every capture.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/refuse.h"
#include "buffer.h"
#include "cleave/names.h"
#include "operands/gemm_operands.h"

namespace cleave::jax_ops {
namespace {

namespace ffi = xla::ffi;

constexpr std::pair<std::string_view, std::optional<Operand> GemmTensors::*> kRoles[] = {
    {"a", &GemmTensors::a},
    {"b", &GemmTensors::b},
    {"c", &GemmTensors::c},
    {"bias", &GemmTensors::bias},
    {"scale_a", &GemmTensors::scale_a},
    {"scale_b", &GemmTensors::scale_b},
    {"offs", &GemmTensors::offs},
};

/// Takes the first of the words that commas separate.
std::string_view next_word(std::string_view& words) {
  const std::string_view word = words.substr(0, words.find(','));
  words.remove_prefix(std::min(word.size() + 1, words.size()));
  return word;
}

bool names(std::string_view words, std::string_view wanted) {
  while (!words.empty()) {
    if (next_word(words) == wanted) return true;
  }
  return false;
}

GemmTensors tensors_of(const ffi::RemainingArgs& buffers, std::string_view operands, std::string_view columns,
                       int device) {
  GemmTensors tensors;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const std::string_view name = next_word(operands);
    const auto role = std::ranges::find(kRoles, name, [](const auto& each) { return each.first; });
    const auto buffer = buffers.get<ffi::AnyBuffer>(i);
    if (role == std::end(kRoles) || !buffer) refuse_value("operand {} of a call of XLA's is \"{}\"", i, name);
    const Operand operand = read(*buffer, device);
    tensors.*role->second = names(columns, name) ? transposed(operand) : operand;
  }
  return tensors;
}

/// A product on the buffers of one call.
GemmCall product_of(const ffi::RemainingArgs& buffers, const ffi::AnyBuffer& d, const ffi::Dictionary& attributes,
                    int device) {
  const auto text = [&](std::string_view name) { return *attributes.get<std::string_view>(name); };
  const auto flag = [&](std::string_view name) { return *attributes.get<bool>(name); };
  const GemmTensors tensors = tensors_of(buffers, text("operands"), text("transposed"), device);
  const Operand result = read(d, device);
  GemmOptions options{.d_type = result.dtype,
                      .activation = from_string<Activation>(text("activation")),
                      .grouped = flag("grouped"),
                      .plan = {.split_k_mode = from_string<SplitKMode>(text("split_k_mode")),
                               .split_k_slices = int32_t(*attributes.get<int64_t>("split_k_slices")),
                               .precision = from_string<Precision>(text("precision")),
                               .fast_accumulation = flag("use_fast_accum")}};
  GemmCall product = make_call(tensors, options);
  const auto shape = product.d_shape();
  if (!std::equal(result.shape, result.shape + result.ndim, shape.end() - result.ndim, shape.end())) {
    refuse_value("the result is {}, and D is ({}, {}, {})", shape_text(result), shape[0], shape[1], shape[2]);
  }
  product.arguments.d = result.data;
  std::optional<float> beta;
  if (tensors.c) beta = *attributes.get<float>("beta");
  set_scalars(*attributes.get<float>("alpha"), beta, product);
  return product;
}

/// Calls body(), and tells XLA of what it throws.
template <class Body>
ffi::Error guarded(const Body& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const Error& error) {
    const bool of_caller = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::invalid_type ||
                           error.code() == ErrorCode::unsupported;
    return of_caller ? ffi::Error::InvalidArgument(error.what()) : ffi::Error::Internal(error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

ffi::Error run(void* stream, int32_t device, ffi::RemainingArgs buffers, ffi::Result<ffi::AnyBuffer> d,
               ffi::Dictionary attributes) {
  return guarded([&] {
    const GemmCall product = product_of(buffers, *d, attributes, device);
    plan(product.problem)->run(product.arguments, stream);
  });
}

ffi::Error run_on_cpu(ffi::RemainingArgs buffers, ffi::Result<ffi::AnyBuffer> d, ffi::Dictionary attributes) {
  return run(nullptr, kCpu, buffers, d, attributes);
}

// Made when the library is loaded: a child of fork() meets no lock of theirs.
const ffi::Ffi* const kProductOnCpu =
    ffi::Ffi::Bind().RemainingArgs().Ret<ffi::AnyBuffer>().Attrs().To(run_on_cpu).release();
const ffi::Ffi* const kProductOnCuda = ffi::Ffi::Bind()
                                           .Ctx<ffi::PlatformStream<void*>>()
                                           .Ctx<ffi::DeviceOrdinal>()
                                           .RemainingArgs()
                                           .Ret<ffi::AnyBuffer>()
                                           .Attrs()
                                           .To(run)
                                           .release();

}  // namespace
}  // namespace cleave::jax_ops

extern "C" {

XLA_FFI_Error* cleave_jax_product_on_cpu(XLA_FFI_CallFrame* frame) {
  return cleave::jax_ops::kProductOnCpu->Call(frame);
}

XLA_FFI_Error* cleave_jax_product_on_cuda(XLA_FFI_CallFrame* frame) {
  return cleave::jax_ops::kProductOnCuda->Call(frame);
}

}  // extern "C"
