#include "all_kernels/all_configs.h"

#include <algorithm>

#include "all_kernels/typical_problems.h"
#include "base/enumerators.h"
#include "plan/catalogue/tiles.h"
#include "plan/catalogue/variants.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

constexpr Major kMajors[] = {Major::k, Major::mn};
constexpr Conv kConvs[] = {Conv::fprop, Conv::dgrad, Conv::wgrad};

using namespace typical;

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
    lists();
    found_scales();
    given_scales();
    packed_weights();
    convolutions();
    few_channels();
    patches();
    narrow_groups();
    windows();
    spread();
    one_tap();
    for (const Precision precision : {Precision::ieee, Precision::tf32x3, Precision::bf16x3}) other_float32(precision);
    visit_layer();
    return std::move(configs_);
  }

 private:
  void visit(const GemmProblem& p, SplitKMode split = SplitKMode::none, bool all_sharings = false,
             bool in_turn = false) {
    for (Spec spec : tiles(p)) {
      spec.split = split;
      spec.in_turn = in_turn;
      spec.slices = split == SplitKMode::none && !in_turn ? 1 : 8;
      spec.cluster_k = split == SplitKMode::parallel && in_turn ? 4 : 1;
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
      p.epilogue = epilogue_of(Activation::gelu_erf);
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
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel}) visit(p, split, all_sharings, true);
    };
    for (const DType in : {DType::bf16, DType::f32}) add(product(in, in, in), in == DType::bf16);
    add(product(DType::f16, DType::f16, DType::f32, Major::k, Major::mn));
    add(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true));
    GemmProblem layer = product(DType::bf16, DType::bf16, DType::bf16);
    layer.bias = Bias::row;
    layer.has_c = true;
    layer.epilogue = epilogue_of(Activation::gelu_erf);
    add(layer);
    add(with_function(product(DType::bf16, DType::bf16, DType::bf16)));
    add(with_gate(product(DType::bf16, DType::bf16, DType::bf16)));
    add(grouped(product(DType::bf16, DType::bf16, DType::bf16), Grouping::m));
    add(grouped(with_function(product(DType::bf16, DType::bf16, DType::bf16)), Grouping::m));
  }

  void epilogues() {
    for (const Activation activation : values_of<Activation>) {
      GemmProblem p = product(DType::bf16, DType::bf16, DType::bf16);
      p.epilogue = epilogue_of(activation);
      if (activation == Activation::none || p.epilogue.gates != Gates::none) continue;
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
    reductions();
  }

  void reductions() {
    const GemmProblem tn = product(DType::bf16, DType::bf16, DType::bf16);
    for (const SplitKMode split : values_of<SplitKMode>)
      if (split != SplitKMode::automatic) visit(with_reductions(tn), split);
    visit(with_reductions(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector)));
    visit(with_reductions(grouped(tn, Grouping::m)));
    visit(with_reductions(grouped(tn, Grouping::m)), SplitKMode::parallel);
    visit(with_reductions(grouped(product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn), Grouping::k)));
    for (const Conv kind : kConvs) visit(with_reductions(convolution(kind, DType::bf16, DType::bf16, 2)));
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
      GemmProblem adapter = tn;
      adapter.has_c = true;
      visit(grouped(adapter, Grouping::m), split);
      visit(grouped(product(DType::bf16, DType::bf16, DType::bf16, Major::k, Major::mn), Grouping::m), split);
      GemmProblem gradient = product(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn);
      gradient.has_c = true;
      visit(grouped(gradient, Grouping::k), split, all_sharings);
    }
    GemmProblem feed_forward = product(DType::bf16, DType::bf16, DType::bf16);
    feed_forward.epilogue = epilogue_of(Activation::swiglu);
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

  /// Groups of rows that a list names: what threads copy beside scales.
  void lists() {
    const auto gate = [](GemmProblem p) {
      p.epilogue = epilogue_of(Activation::swiglu);
      p.b.stride_batch = 0;
      return p;
    };
    const GemmProblem operands[] = {product(DType::bf16, DType::bf16, DType::bf16),
                                    scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true),
                                    scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares),
                                    scaled(DType::i8, DType::i8, DType::bf16, kLines, kLines)};
    for (const GemmProblem& p : operands) {
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k})
        visit(listed(grouped(p, Grouping::m)), split, split == SplitKMode::none);
      visit(listed(grouped(gate(p), Grouping::m)), SplitKMode::none, true);
      GemmProblem found = gate(p);
      found.d.dtype = DType::e4m3;
      found.scale_out = kLines;
      visit(listed(grouped(found, Grouping::m)), SplitKMode::none, true);
    }
    visit(listed(grouped(with_function(operands[0]), Grouping::m)));
  }

  /// D in 8 bits with scales that are found, of layers as they follow each other.
  void found_scales() {
    const auto quantised = [](GemmProblem p, Activation activation) {
      p.epilogue = epilogue_of(activation);
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
          visit(grouped(layer, Grouping::m), split, first && split == SplitKMode::none);
      }
    }
    GemmProblem rounded = quantised(operands[0], Activation::none);
    rounded.ue8m0_scale_out = rounded.has_amax = rounded.has_c = true;
    rounded.c.dtype = DType::bf16;
    visit(rounded);
    for (const ScaleLayout& columns : {kLines, kSquares}) {
      GemmProblem wide = scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, columns);
      wide.epilogue = epilogue_of(Activation::swiglu);
      wide.b.stride_batch = 0;
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
        visit(wide, split);
        visit(grouped(wide, Grouping::m), split);
      }
    }
  }

  /// D in 8 bits with a scale that was found ahead: of gates, and of groups.
  void given_scales() {
    for (GemmProblem p : {scaled(DType::e4m3, DType::e4m3, DType::e4m3, kVector, kVector, true),
                          scaled(DType::e4m3, DType::e4m3, DType::e5m2, kLines, kSquares),
                          scaled(DType::i8, DType::i8, DType::i8, kVector, kVector)}) {
      p.epilogue = epilogue_of(Activation::swiglu);
      p.has_scale_d = p.has_amax = true;
      p.bias = Bias::row;
      p.b.stride_batch = 0;
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
        visit(p, split);
      visit(grouped(p, Grouping::m));
      p.epilogue = epilogue_of(Activation::none);
      visit(grouped(p, Grouping::m));
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
      layer.epilogue = epilogue_of(Activation::silu);
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
    layer.epilogue = epilogue_of(Activation::gelu_erf);
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
    const auto nvfp4 = [](DType type) {
      GemmProblem p = weights(type, type, 16, false, Major::k, WeightFormat::nvfp4);
      p.scale_b = {.kind = Scaling::vector};
      return p;
    };
    GemmProblem bias = nvfp4(DType::bf16);
    bias.bias = Bias::row;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::cluster, SplitKMode::stream_k}) add(bias, split);
    add(nvfp4(DType::f16), SplitKMode::parallel);
    add(grouped(nvfp4(DType::bf16), Grouping::m));
    const auto joined = [](GemmProblem p) {
      p.epilogue = epilogue_of(Activation::swiglu);
      p.weights_b.scale_stride_k = 2 * p.n;
      p.bias = Bias::row;
      return p;
    };
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::cluster, SplitKMode::stream_k})
      add(joined(weights(DType::bf16, DType::bf16, 128, false)), split);
    add(joined(weights(DType::f16, DType::f16, 64, true)), SplitKMode::parallel);
    add(joined(grouped(mxfp4(DType::bf16), Grouping::m)));
    GemmProblem layer = weights(DType::bf16, DType::bf16, 128, true);
    layer.bias = Bias::row;
    layer.has_c = true;
    layer.epilogue = epilogue_of(Activation::gelu_erf);
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) add(layer, split);
    layer.deterministic = Determinism::batch_invariant;
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel}) add(layer, split, true);
    add(weights(DType::bf16, DType::bf16, 128, false), SplitKMode::parallel, true);
    add(with_function(weights(DType::bf16, DType::bf16, 128, false)));
    const auto bytes = [](DType type, int64_t group, bool has_zero, WeightFormat format = WeightFormat::int4) {
      GemmProblem p = weights(type, DType::bf16, group, has_zero, Major::k, format);
      p.scale_a = kVector;
      return p;
    };
    for (const SplitKMode split : {SplitKMode::none, SplitKMode::cluster, SplitKMode::stream_k}) {
      add(bytes(DType::e4m3, 128, false), split);
      add(bytes(DType::i8, 64, true), split);
    }
    add(bytes(DType::e4m3, 32, true), SplitKMode::parallel);
    add(bytes(DType::i8, 32, true), SplitKMode::serial);
    add(bytes(DType::i8, 128, false), SplitKMode::parallel);
    add(bytes(DType::e4m3, 32, false, WeightFormat::mxfp4));
    GemmProblem bytes_layer = bytes(DType::i8, 128, true);
    bytes_layer.bias = Bias::row;
    bytes_layer.has_c = true;
    add(bytes_layer);
    add(with_function(bytes(DType::e4m3, 128, false)));
    add(grouped(bytes(DType::e4m3, 64, false), Grouping::m));
    add(grouped(bytes(DType::i8, 128, true), Grouping::m), SplitKMode::parallel);
    add(grouped(weights(DType::bf16, DType::bf16, 32, false), Grouping::m));
    add(grouped(weights(DType::bf16, DType::bf16, 128, true), Grouping::m), SplitKMode::stream_k);
  }

  /// What each method that serves it runs.
  void add_direct(const GemmProblem& p) {
    for (const Spec& spec : direct_specs(p, device_)) {
      const auto choice = make_choice(p, device_, spec);
      if (choice && std::ranges::find(configs_, choice->config) == configs_.end()) configs_.push_back(choice->config);
    }
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
        p.epilogue = epilogue_of(Activation::gelu_erf);
      }
      p.has_c = epilogue == activation;
      add_direct(p);
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
      add(kind, DType::bf16, DType::f32, 3, 2, 8, activation);
      add(kind, DType::f16, DType::f16, 3, 1, 16, function);
      add(kind, DType::bf16, DType::bf16, 3, 2, 16);
      add(kind, DType::f16, DType::f16, 5, 1, 32);
    }
    for (const int32_t taps : {3, 5, 7})
      for (const int32_t stride : {1, 2}) add(Conv::wgrad, DType::bf16, DType::bf16, taps, stride, 1);
    for (const int64_t group : {2, 4}) add(Conv::wgrad, DType::f16, DType::f32, 3, 1, group, activation);
    add(Conv::wgrad, DType::f32, DType::f32, 5, 2, 1);
  }

  void windows() {
    const auto add = [&](Conv kind, DType in, DType out, int64_t channels, int64_t filters, int32_t taps,
                         int32_t stride, bool finishes = false) {
      const ConvAxis axis{.size = 64, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
      const ConvLayout conv{
          .kind = kind, .images = 8, .channels = channels, .filters = filters, .axes = {ConvAxis{}, axis, axis}};
      GemmProblem p = implicit_gemm(conv, 1, in, out);
      p.has_c = finishes;
      if (finishes && kind == Conv::fprop) {
        p.bias = Bias::row;
        p.epilogue = epilogue_of(Activation::silu);
      }
      add_direct(p);
    };
    for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
      add(kind, DType::f16, DType::f16, 3, 64, 7, 2);
      add(kind, DType::bf16, DType::bf16, 3, 64, 7, 2, true);
      add(kind, DType::bf16, DType::f32, 3, 64, 3, 1, true);
      add(kind, DType::f16, DType::f16, 3, 32, 3, 2);
      add(kind, DType::bf16, DType::bf16, 4, 320, 3, 1);
      add(kind, DType::f16, DType::f16, 1, 24, 5, 1);
      add(kind, DType::f16, DType::bf16, 3, 96, 4, 4);
      add(kind, DType::f16, DType::f16, 4, 64, 8, 1);
    }
  }

  void spread() {
    const auto add = [&](DType in, DType out, int64_t channels, int64_t filters, int32_t taps, int32_t stride,
                         bool finishes = false) {
      const ConvAxis axis{.size = 64, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
      const ConvLayout conv{
          .kind = Conv::dgrad, .images = 8, .channels = channels, .filters = filters, .axes = {ConvAxis{}, axis, axis}};
      GemmProblem p = implicit_gemm(conv, 1, in, out);
      if (finishes) {
        p.has_c = true;
        p.bias = Bias::row;
        p.epilogue = epilogue_of(Activation::silu);
      }
      for (const GemmProblem& of : {p, with_function(p)}) {
        add_direct(of);
        if (finishes) break;
      }
    };
    add(DType::f16, DType::f16, 3, 64, 7, 2);
    add(DType::bf16, DType::bf16, 3, 128, 3, 1, true);
    add(DType::f16, DType::f32, 4, 320, 3, 1, true);
    add(DType::bf16, DType::bf16, 8, 96, 3, 2);
    add(DType::f16, DType::f16, 1, 24, 5, 3);
    add(DType::f16, DType::f16, 32, 64, 3, 1);
    add(DType::f16, DType::bf16, 6, 72, 4, 2);
    add(DType::f16, DType::f16, 3, 96, 4, 4);
  }

  void one_tap() {
    const auto add = [&](Conv kind, DType in, DType out, int64_t channels, int64_t filters, bool finishes = false) {
      const ConvLayout conv{.kind = kind,
                            .images = 64,
                            .channels = channels,
                            .filters = filters,
                            .axes = {ConvAxis{}, ConvAxis{.size = 56}, ConvAxis{.size = 56}}};
      GemmProblem p = implicit_gemm(conv, 1, in, out);
      if (finishes) {
        p.has_c = true;
        p.bias = Bias::row;
        p.epilogue = epilogue_of(Activation::silu);
      }
      for (const GemmProblem& of : {p, with_function(p)}) add_direct(of);
    };
    for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
      add(kind, DType::f16, DType::f16, 24, 144);
      add(kind, DType::bf16, DType::f32, 144, 40);
      add(kind, DType::bf16, DType::bf16, 192, 32, true);
      add(kind, DType::f16, DType::bf16, 16, 96, true);
    }
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
    layer.epilogue = epilogue_of(Activation::silu);
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
