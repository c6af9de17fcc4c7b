#include "plan/all_configs.h"

#include <algorithm>

#include "base/enumerators.h"
#include "cleave/conv.h"
#include "cleave/epilogue.h"
#include "plan/catalogue.h"
#include "plan/direct_choice.h"

namespace cleave {
namespace {

constexpr Major kMajors[] = {Major::k, Major::mn};
constexpr Conv kConvs[] = {Conv::fprop, Conv::dgrad, Conv::wgrad};

MatrixLayout matrix(DType type, bool rows, int64_t m, int64_t n, uint32_t alignment = 16) {
  return rows ? MatrixLayout{type, n, 1, 0, alignment} : MatrixLayout{type, 1, m, 0, alignment};
}

/// A problem that no dimension of makes special; `a`, `b`: types of the operands.
GemmProblem product(DType a, DType b, DType d, Major a_major = Major::k, Major b_major = Major::k,
                    uint32_t alignment = 16) {
  GemmProblem p;
  p.m = p.n = 1024;
  p.k = 4096;
  p.a = matrix(a, a_major == Major::k, p.m, p.k, alignment);
  p.b = matrix(b, b_major == Major::mn, p.k, p.n, alignment);
  p.c = p.d = matrix(d, true, p.m, p.n);
  p.bias_dtype = DType::f32;
  return p;
}

constexpr ScaleLayout kVector{.kind = Scaling::vector, .stride_row = 1};
constexpr ScaleLayout kLines{.kind = Scaling::block, .rows = 1, .stride_row = 1};
constexpr ScaleLayout kSquares{.kind = Scaling::block, .rows = 128, .stride_row = 1};

GemmProblem scaled(DType a, DType b, DType d, ScaleLayout scale_a, ScaleLayout scale_b, bool fast = false) {
  GemmProblem p = product(a, b, d);
  p.scale_a = scale_a;
  p.scale_b = scale_b;
  p.fast_accumulation = fast;
  return p;
}

/// B of 4 bits.
GemmProblem weights(DType type, DType d, int64_t group, bool has_zero, Major a_major = Major::k,
                    WeightFormat format = WeightFormat::int4) {
  GemmProblem p = product(type, type, d, a_major);
  p.weights_b = {.format = format, .has_zero = has_zero, .group = group, .scale_stride_k = p.n};
  return p;
}

/// As a mixture of experts has it.
GemmProblem grouped(GemmProblem p, Grouping dimension) {
  p.batch = 64;
  p.groups.dimension = dimension;
  if (dimension == Grouping::m) p.b.stride_batch = p.k * p.n;
  if (dimension == Grouping::n) p.a.stride_batch = p.m * p.k;
  if (dimension == Grouping::k) p.c.stride_batch = p.d.stride_batch = p.m * p.n;
  return p;
}

GemmProblem convolution(Conv kind, DType in, DType out, int32_t stride, bool depth = false,
                        Division division = Division::automatic) {
  const ConvAxis axis{.size = 28, .filter = 3, .stride = stride, .pad_begin = 1, .pad_end = 1};
  const ConvLayout conv{.kind = kind,
                        .images = 8,
                        .channels = 256,
                        .filters = 256,
                        .axes = {depth ? axis : ConvAxis{}, axis, axis},
                        .division = division};
  return implicit_gemm(conv, 1, in, out);
}

GemmProblem convolution_of(Conv kind, int64_t channels, int64_t filters) {
  ConvLayout conv = convolution(kind, DType::f16, DType::f16, 2).conv;
  conv.channels = channels;
  conv.filters = filters;
  return implicit_gemm(conv, 1, DType::f16, DType::f16);
}

GemmProblem patch_embedding(int32_t size, DType out, bool depth = false) {
  const ConvAxis axis{.size = 8 * size, .filter = size, .stride = size};
  const ConvLayout conv{
      .kind = Conv::dgrad, .images = 8, .channels = 3, .filters = 768, .axes = {depth ? axis : ConvAxis{}, axis, axis}};
  return implicit_gemm(conv, 1, DType::bf16, out);
}

/// A layer with an epilogue function whose inputs have every shape, and with a second output.
GemmProblem with_function(GemmProblem p) {
  p.epilogue.function = &epilogue_function(R"(
    bias row
    scale scalar
    weight column
    residual matrix
    %0 = multiply acc scale
    %1 = add %0 bias
    %2 = negative %1
    %3 = exp %2
    %4 = add %3 1
    %5 = divide %1 %4
    %6 = multiply %5 weight
    d = add %6 residual
    pre = %1)");
  // Each group, a convolution's too, has values of its own where it may.
  const bool is_conv = p.conv.kind != Conv::none;
  const auto vector = [&](InputShape shape, int64_t own, bool cut) {
    return EpilogueLayout{.shape = shape,
                          .dtype = DType::f32,
                          .alignment = 4,
                          .stride = 1,
                          .stride_batch = p.batch > 1 && !cut ? own : 0};
  };
  const EpilogueLayout matrix{
      .dtype = p.d.dtype, .alignment = 16, .stride = p.d.stride_row, .stride_batch = p.d.stride_batch};
  p.epilogue.inputs[0] = vector(InputShape::row, p.n, p.groups.dimension == Grouping::n);
  p.epilogue.inputs[1] = vector(InputShape::scalar, 1, is_conv);
  p.epilogue.inputs[2] = vector(InputShape::column, p.m, p.groups.dimension == Grouping::m || is_conv);
  p.epilogue.inputs[3] = p.epilogue.outputs[0] = matrix;
  return p;
}

/// One whose inputs and outputs are all matrices.
GemmProblem with_matrices(GemmProblem p, const char* function) {
  p.epilogue.function = &epilogue_function(function);
  const EpilogueLayout matrix{.dtype = p.d.dtype, .alignment = 16, .stride = p.d.stride_row};
  std::fill_n(p.epilogue.inputs, p.epilogue.function->inputs().size(), matrix);
  std::fill_n(p.epilogue.outputs, p.epilogue.function->outputs().size() - 1, matrix);
  return p;
}

constexpr const char* kErrorFunction = R"(
    residual matrix
    %0 = erf acc
    %1 = multiply %0 acc
    d = add %1 residual
    pre = acc)";
constexpr const char* kManyMatrices = R"(
    x matrix
    y matrix
    z matrix
    %0 = multiply acc x
    %1 = multiply y z
    d = add %0 %1
    e = add acc y
    f = multiply acc z)";

/// A gate with limits, whose two sums the function joins.
GemmProblem with_gate(GemmProblem p) {
  p.epilogue.function = &epilogue_function(R"(
    limit scalar
    %0 = minimum acc.gate limit
    %1 = negative limit
    %2 = maximum acc.up %1
    %3 = minimum %2 limit
    %4 = multiply %0 1.702
    %5 = sigmoid %4
    %6 = multiply %0 %5
    %7 = add %3 1
    d = multiply %6 %7
    kept = %0)");
  p.epilogue.gated = true;
  p.epilogue.inputs[0] = {.shape = InputShape::scalar, .dtype = DType::f32, .alignment = 4};
  p.epilogue.outputs[0] = {.dtype = p.d.dtype, .alignment = 16, .stride = p.d.stride_row};
  p.b.stride_batch = 0;
  return p;
}

/// float32 as it is or in parts: the portable kernel with another multiplication.
GemmProblem with(Precision precision, GemmProblem p) {
  p.precision = precision;
  return p;
}

class Collector {
 public:
  explicit Collector(const DeviceInfo& device) : device_(device) {}

  std::vector<GemmConfig> configs() {
    layouts();
    few_rows();
    split_modes();
    in_turn();
    epilogues();
    functions();
    scales();
    groups();
    found_scales();
    packed_weights();
    convolutions();
    few_channels();
    patches();
    narrow_groups();
    for (const Precision precision : {Precision::ieee, Precision::tf32x3, Precision::bf16x3}) other_float32(precision);
    visit_layer();
    return std::move(configs_);
  }

 private:
  void visit(const GemmProblem& p, SplitKMode split = SplitKMode::none, bool all_sharings = false,
             bool in_turn = false) {
    for (Spec spec : tiles(KernelFamily::automatic, is_product(p))) {
      spec.split = split;
      spec.in_turn = in_turn;
      spec.slices = split == SplitKMode::none && !in_turn ? 1 : 8;
      if (p.a.alignment < 16 && p.b.alignment < 16 && has_tma(spec.family)) continue;
      // Multicast and the order of D's stores do not depend on the rest: once each is enough.
      if (!all_sharings && (spec.transposed || spec.multicast_m * spec.multicast_n > 1)) continue;
      for (const Spec& variant : variants(spec, p)) {
        const auto choice = make_choice(p, device_, variant);
        if (choice && std::ranges::find(configs_, choice->config) == configs_.end()) configs_.push_back(choice->config);
      }
    }
  }

  void layouts() {
    for (const Major a : kMajors) {
      for (const Major b : kMajors) {
        const bool base = a == Major::k && b == Major::k;
        for (const DType in : {DType::bf16, DType::f32}) visit(product(in, in, in, a, b), SplitKMode::none, base);
        visit(product(DType::f16, DType::f16, DType::f16, a, b, 2), SplitKMode::none, base);
      }
    }
  }

  /// Contiguous along them.
  void few_rows() {
    for (const Major b : kMajors) {
      GemmProblem p = product(DType::bf16, DType::bf16, DType::bf16, Major::mn, b);
      p.m = 64;
      for (const uint32_t alignment : {16, 8, 4}) {
        p.a = matrix(DType::bf16, false, p.m, p.k, alignment);
        visit(p, SplitKMode::none, alignment == 16);
      }
      for (const SplitKMode split : {SplitKMode::parallel, SplitKMode::cluster, SplitKMode::stream_k})
        visit(p, split, b == Major::k);
      p.bias = Bias::row;
      p.activation = Activation::gelu_erf;
      p.has_c = true;
      visit(p);
    }
  }

  void split_modes() {
    for (const SplitKMode split : values_of<SplitKMode>) {
      if (split == SplitKMode::none || split == SplitKMode::automatic) continue;
      for (const DType in : {DType::f16, DType::f32, DType::i8}) visit(product(in, in, DType::f32), split);
    }
  }

  /// Rows that do not depend on M, of products and of groups.
  void in_turn() {
    const auto add = [&](GemmProblem p, bool all_sharings = false) {
      p.deterministic = Determinism::batch_invariant;
      visit(p, SplitKMode::none, all_sharings, true);
    };
    for (const DType in : {DType::bf16, DType::f32}) add(product(in, in, in), in == DType::bf16);
    add(product(DType::f16, DType::f16, DType::f32, Major::k, Major::mn));
    add(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true));
    GemmProblem layer = product(DType::bf16, DType::bf16, DType::bf16);
    layer.bias = Bias::row;
    layer.has_c = true;
    layer.activation = Activation::gelu_erf;
    add(layer);
    add(with_function(product(DType::bf16, DType::bf16, DType::bf16)));
    add(with_gate(product(DType::bf16, DType::bf16, DType::bf16)));
    add(grouped(product(DType::bf16, DType::bf16, DType::bf16), Grouping::m));
    add(grouped(with_function(product(DType::bf16, DType::bf16, DType::bf16)), Grouping::m));
  }

  void epilogues() {
    for (const Activation activation : values_of<Activation>) {
      if (activation == Activation::none || activation == Activation::swiglu) continue;
      GemmProblem p = product(DType::bf16, DType::bf16, DType::bf16);
      p.activation = activation;
      p.bias = Bias::row;
      p.has_c = true;
      visit(p);
    }
  }

  void functions() {
    visit(with_function(product(DType::bf16, DType::bf16, DType::bf16)));
    visit(with_function(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector)));
    for (const SplitKMode split : values_of<SplitKMode>)
      if (split != SplitKMode::automatic) visit(with_function(product(DType::f16, DType::f16, DType::f32)), split);
    for (const char* const function : {kErrorFunction, kManyMatrices})
      for (const DType d : {DType::f16, DType::f32}) visit(with_matrices(product(DType::f16, DType::f16, d), function));
    visit(with_gate(product(DType::bf16, DType::bf16, DType::bf16)));
    visit(with_gate(grouped(product(DType::bf16, DType::bf16, DType::bf16), Grouping::m)));
    visit(with_gate(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector)));
    functions_of_groups();
    functions_of_convolutions();
  }

  void functions_of_groups() {
    const GemmProblem tn = product(DType::bf16, DType::bf16, DType::bf16);
    const GemmProblem gradient = product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn);
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k}) {
      visit(with_function(grouped(tn, Grouping::m)), split);
      visit(with_function(grouped(gradient, Grouping::k)), split);
    }
    visit(with_function(grouped(tn, Grouping::n)));
    visit(with_function(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector), Grouping::m)));
    visit(with_function(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares), Grouping::m)));
  }

  void functions_of_convolutions() {
    for (const Conv kind : kConvs) {
      visit(with_function(convolution(kind, DType::bf16, DType::bf16, 2)));
      visit(with_function(convolution(kind, DType::f16, DType::f32, 1)), SplitKMode::parallel);
      visit(with_function(convolution_of(kind, 6, 256)));
    }
    for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
      visit(with_function(convolution(Conv::dgrad, DType::bf16, DType::bf16, 2)), split);
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel})
      visit(with_function(patch_embedding(16, DType::bf16)), split);
    visit(with_function(patch_embedding(14, DType::bf16)));
  }

  /// 8-bit operands: every way to scale them, and to store what comes out.
  void scales() {
    GemmProblem asymmetric = scaled(DType::i8, DType::i8, DType::bf16, kVector, kVector);
    asymmetric.has_zero = true;
    asymmetric.bias = Bias::row;
    visit(asymmetric);
    GemmProblem exact = product(DType::i8, DType::i8, DType::i32);
    exact.has_c = true;
    visit(exact);
    visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true), SplitKMode::none, true);
    visit(scaled(DType::e5m2, DType::e4m3, DType::f32, kVector, kVector));
    GemmProblem chained = scaled(DType::e4m3, DType::e5m2, DType::e4m3, kVector, kVector);
    chained.has_scale_d = chained.has_amax = chained.has_c = true;
    visit(chained);
    visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares));
    visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, kSquares, kLines));
    visit(scaled(DType::e4m3, DType::e4m3, DType::f32, kLines, kLines));
    visit(scaled(DType::i8, DType::i8, DType::bf16, kLines, kSquares));
  }

  /// Forward, data gradient, weight gradient.
  void groups() {
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
      const bool all_sharings = split == SplitKMode::none;
      const GemmProblem tn = product(DType::bf16, DType::bf16, DType::bf16);
      visit(grouped(tn, Grouping::m), split, all_sharings);
      visit(grouped(tn, Grouping::n), split);
      visit(grouped(product(DType::bf16, DType::bf16, DType::bf16, Major::k, Major::mn), Grouping::m), split);
      GemmProblem gradient = product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn);
      gradient.has_c = true;
      visit(grouped(gradient, Grouping::k), split, all_sharings);
    }
    GemmProblem feed_forward = product(DType::bf16, DType::bf16, DType::bf16);
    feed_forward.activation = Activation::swiglu;
    feed_forward.b.stride_batch = 0;
    visit(feed_forward, SplitKMode::none, true);
    visit(grouped(feed_forward, Grouping::m));
    visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true), Grouping::m));
    visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares), Grouping::m));
    GemmProblem gradient = scaled(DType::e4m3, DType::e4m3, DType::f32, kLines, kLines);
    gradient.groups.bounds = GroupBounds::aligned_ends;
    gradient.groups.spacing = kScaleBlock;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
      gradient.groups.apart = false;
      visit(grouped(gradient, Grouping::k), split);
      gradient.groups.apart = true;
      visit(grouped(gradient, Grouping::k), split, split == SplitKMode::none);
    }
  }

  /// D in 8 bits with scales that are found, of layers as they follow each other.
  void found_scales() {
    const auto quantised = [](GemmProblem p, Activation activation) {
      p.activation = activation;
      p.bias = Bias::row;
      p.scale_out = kLines;
      p.b.stride_batch = 0;
      return p;
    };
    const GemmProblem operands[] = {product(DType::bf16, DType::bf16, DType::e4m3),
                                    scaled(DType::e4m3, DType::e4m3, DType::e4m3, kVector, kVector),
                                    scaled(DType::e4m3, DType::e4m3, DType::e4m3, kLines, kSquares),
                                    scaled(DType::e4m3, DType::e4m3, DType::e5m2, kLines, kLines),
                                    scaled(DType::i8, DType::i8, DType::i8, kVector, kVector)};
    for (const Activation activation : {Activation::swiglu, Activation::gelu_erf}) {
      for (const GemmProblem& p : operands) {
        const GemmProblem layer = quantised(p, activation);
        const bool first = &p == operands;
        for (const SplitKMode split : values_of<SplitKMode>)
          if (split != SplitKMode::automatic) visit(layer, split, first && split == SplitKMode::none);
        for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k})
          visit(grouped(layer, Grouping::m), split);
      }
    }
    GemmProblem rounded = quantised(operands[0], Activation::none);
    rounded.ue8m0_scale_out = rounded.has_amax = rounded.has_c = true;
    rounded.c.dtype = DType::bf16;
    visit(rounded);
    for (const ScaleLayout& columns : {kLines, kSquares}) {
      GemmProblem wide = scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, columns);
      wide.activation = Activation::swiglu;
      wide.b.stride_batch = 0;
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
        visit(wide, split);
        visit(grouped(wide, Grouping::m), split);
      }
    }
  }

  /// One class and several, with and without depth, in all three directions.
  void convolutions() {
    for (const Conv kind : kConvs) {
      visit(convolution(kind, DType::f16, DType::f16, 2), SplitKMode::none, true);
      visit(convolution(kind, DType::bf16, DType::f32, 1), SplitKMode::parallel);
      visit(convolution(kind, DType::f32, DType::f32, 2));
      visit(convolution(kind, DType::bf16, DType::bf16, 2, true));
    }
    for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
      visit(convolution(Conv::dgrad, DType::bf16, DType::bf16, 2), split);
    visit(convolution(Conv::fprop, DType::i8, DType::i32, 2));
    for (const DType type : {DType::e4m3, DType::i8}) {
      GemmProblem layer = convolution(Conv::fprop, type, DType::bf16, 2);
      layer.scale_a = layer.scale_b = {.kind = Scaling::vector};
      layer.bias = Bias::row;
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel}) visit(layer, split);
      layer.d.dtype = type;
      layer.has_scale_d = layer.has_amax = true;
      layer.activation = Activation::silu;
      visit(layer);
      visit(layer, SplitKMode::stream_k);
    }
    for (const Division division : {Division::plain, Division::fast_load})
      visit(convolution(Conv::dgrad, DType::f16, DType::f16, 2, false, division));
  }

  void few_channels() {
    for (const Conv kind : kConvs) {
      for (const int64_t few : {8, 6, 3}) {
        visit(convolution_of(kind, few, 256));
        visit(convolution_of(kind, few, 256), SplitKMode::parallel);
        if (kind == Conv::dgrad) visit(convolution_of(kind, 64, few));
      }
    }
  }

  /// Patch embeddings' data gradients: whose filters TMA reads, and does not.
  void patches() {
    for (const int32_t size : {16, 14, 4, 2}) visit(patch_embedding(size, DType::bf16), SplitKMode::none, size == 16);
    visit(patch_embedding(4, DType::bf16, true));
    visit(patch_embedding(16, DType::f32));
    for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
      visit(patch_embedding(16, DType::bf16), split);
    GemmProblem layer = patch_embedding(16, DType::bf16);
    layer.bias = Bias::row;
    layer.activation = Activation::gelu_erf;
    visit(layer);
    layer.has_c = true;
    visit(layer);
  }

  /// They are served with tiles transposed alone, of any sharing.
  void packed_weights() {
    const auto add = [&](const GemmProblem& p, SplitKMode split = SplitKMode::none, bool in_turn = false) {
      visit(p, split, true, in_turn);
    };
    for (const SplitKMode split : values_of<SplitKMode>) {
      if (split == SplitKMode::automatic) continue;
      add(weights(DType::bf16, DType::bf16, 128, false), split);
      add(weights(DType::f16, DType::f32, 32, true), split);
    }
    add(weights(DType::bf16, DType::bf16, 64, true));
    add(weights(DType::bf16, DType::bf16, 32, false));
    add(weights(DType::bf16, DType::bf16, 128, true, Major::mn), SplitKMode::parallel);
    const auto mxfp4 = [](DType type) { return weights(type, type, 32, false, Major::k, WeightFormat::mxfp4); };
    add(mxfp4(DType::bf16));
    add(mxfp4(DType::f16), SplitKMode::parallel);
    add(grouped(mxfp4(DType::bf16), Grouping::m));
    GemmProblem layer = weights(DType::bf16, DType::bf16, 128, true);
    layer.bias = Bias::row;
    layer.has_c = true;
    layer.activation = Activation::gelu_erf;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) add(layer, split);
    layer.deterministic = Determinism::batch_invariant;
    add(layer, SplitKMode::none, true);
    add(with_function(weights(DType::bf16, DType::bf16, 128, false)));
    add(grouped(weights(DType::bf16, DType::bf16, 32, false), Grouping::m));
    add(grouped(weights(DType::bf16, DType::bf16, 128, true), Grouping::m), SplitKMode::stream_k);
  }

  void narrow_groups() {
    enum class Epilogue { none, activation, function };
    using enum Epilogue;
    const auto add = [&](Conv kind, DType in, DType out, int32_t taps, int32_t stride, int64_t group,
                         Epilogue epilogue = none) {
      const ConvAxis axis{.size = 56, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
      const ConvLayout conv{
          .kind = kind, .images = 8, .channels = group, .filters = group, .axes = {ConvAxis{}, axis, axis}};
      GemmProblem p = implicit_gemm(conv, 96 / group, in, out);
      if (epilogue == function) p = with_function(p);
      if (epilogue == activation && kind != Conv::wgrad) {
        p.bias = Bias::row;
        p.bias_stride_batch = group;
        p.activation = Activation::gelu_erf;
      }
      p.has_c = epilogue == activation;
      const auto spec = direct_spec(p, device_);
      if (!spec) return;
      const auto choice = make_choice(p, device_, *spec);
      if (choice && std::ranges::find(configs_, choice->config) == configs_.end()) configs_.push_back(choice->config);
    };
    for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
      for (const int32_t taps : {3, 5, 7}) {
        for (const int32_t stride : {1, 2})
          add(kind, DType::bf16, DType::bf16, taps, stride, 1, taps == 3 ? activation : none);
      }
      for (const int64_t group : {2, 4, 8}) add(kind, DType::f16, DType::f16, 3, 1, group);
      add(kind, DType::f32, DType::f32, 5, 2, 1);
      add(kind, DType::bf16, DType::f32, 3, 2, 4, activation);
      for (const int32_t stride : {1, 2}) add(kind, DType::bf16, DType::bf16, 3, stride, 1, function);
      add(kind, DType::f16, DType::f32, 5, 1, 2, function);
    }
    for (const int32_t taps : {3, 5, 7})
      for (const int32_t stride : {1, 2}) add(Conv::wgrad, DType::bf16, DType::bf16, taps, stride, 1);
    for (const int64_t group : {2, 4}) add(Conv::wgrad, DType::f16, DType::f32, 3, 1, group, activation);
    add(Conv::wgrad, DType::f32, DType::f32, 5, 2, 1);
  }

  void other_float32(Precision precision) {
    const auto product_of = [&](Major a, Major b) {
      return with(precision, product(DType::f32, DType::f32, DType::f32, a, b));
    };
    for (const Major a : kMajors) {
      for (const Major b : kMajors) visit(product_of(a, b));
    }
    const GemmProblem nt = product_of(Major::mn, Major::mn);
    for (const SplitKMode split : {SplitKMode::parallel, SplitKMode::stream_k}) visit(nt, split);
    visit(grouped(nt, Grouping::k));
    for (const Conv kind : kConvs) visit(with(precision, convolution(kind, DType::f32, DType::f32, 2)));
  }

  /// A transposed convolution as a layer.
  void visit_layer() {
    GemmProblem layer = convolution(Conv::dgrad, DType::bf16, DType::bf16, 2);
    layer.bias = Bias::row;
    layer.has_c = true;
    layer.activation = Activation::silu;
    visit(layer);
  }

  const DeviceInfo& device_;
  std::vector<GemmConfig> configs_;
};

}  // namespace

std::vector<GemmConfig> all_configs(const DeviceInfo& device) {
  return Collector(device).configs();
}

}  // namespace cleave
