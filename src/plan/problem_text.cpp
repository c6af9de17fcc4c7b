#include "plan/problem_text.h"

#include <fmt/format.h>

#include <charconv>
#include <span>
#include <utility>

#include "cleave/conv.h"
#include "cleave/core/math.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "launch/conv_grid.h"
#include "launch/packed_weight.h"
#include "plan/choice/operand_layout.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kWidest = 16;

/// Those of A, B and D: see `lines`.
struct Alignments {
  uint32_t a, b, d;

  friend bool operator==(const Alignments&, const Alignments&) = default;
};

Alignments alignments(const GemmProblem& p) {
  const OperandLayouts operands = operand_layouts(p);
  return {operands.a.alignment, operands.b.alignment, output_alignment(p, output_order(p).value_or(Order::row))};
}

/// `rows` x `columns` for each of `entries`, of the batch or of the groups.
MatrixLayout packed(DType type, bool row_major, int64_t rows, int64_t columns, int64_t entries) {
  // Lines of one element, packed, would be a matrix of the other order.
  const int64_t line = row_major ? columns : rows, stride = line > 1 ? line : kWidest / size_of(type);
  return {.dtype = type,
          .stride_row = row_major ? stride : 1,
          .stride_col = row_major ? 1 : stride,
          .stride_batch = entries > 1 ? stride * (row_major ? rows : columns) : 0};
}

/// The scales of an operand of `rows` rows (columns of B).
ScaleLayout packed_scales(Scaling kind, uint32_t block, int64_t rows, int64_t k, int64_t entries) {
  if (kind == Scaling::none) return {};
  if (kind == Scaling::vector) return {.kind = kind, .stride_row = 1, .stride_batch = entries > 1 ? rows : 0};
  const int64_t count = ceil_div<int64_t>(rows, block), along_k = ceil_div<int64_t>(k, kScaleBlock);
  return {.kind = kind,
          .rows = block,
          .stride_row = 1,
          .stride_k = count,
          .stride_batch = entries > 1 ? count * along_k : 0};
}

/// What the text says of the matrices: their types, orders, and which of A and B a batch shares.
struct Matrices {
  DType a, b, d, c, bias;
  bool a_row_major, b_row_major, d_row_major;
  bool broadcasts_a = false, broadcasts_b = false;
};

/// Places the matrices of `p`, which has everything else but scales' strides.
void place(const Matrices& given, GemmProblem& p) {
  if (p.conv.kind != Conv::none) {
    const GemmProblem implicit = implicit_gemm(p.conv, p.batch, given.a, given.d);
    p.a = implicit.a, p.b = implicit.b, p.d = implicit.d;
  } else {
    const int64_t columns = columns_of_b(p);
    p.a = packed(given.a, given.a_row_major, rows_of_a(p), p.k, given.broadcasts_a ? 1 : entries_of_a(p));
    p.b = packed(given.b, given.b_row_major, p.k, columns, given.broadcasts_b ? 1 : entries_of_b(p));
    p.d = packed(given.d, given.d_row_major, p.m, p.n, entries_of_d(p));
    p.scale_a = packed_scales(p.scale_a.kind, p.scale_a.rows, rows_of_a(p), p.k, entries_of_scale_a(p, p.scale_a.kind));
    p.scale_b = packed_scales(p.scale_b.kind, p.scale_b.rows, columns, p.k, entries_of_scale_b(p, p.scale_b.kind));
    if (p.weights_b.format != WeightFormat::none) place_packed_weight(p);
  }
  p.scale_out = packed_scales(p.scale_out.kind, 1, p.m, p.n, entries_of_d(p));
  p.c = p.d;
  p.c.dtype = given.c;
  p.bias_dtype = given.bias;
  if (p.bias == Bias::row && p.conv.kind != Conv::none && p.batch > 1) p.bias_stride_batch = p.n;
}

/// Moves the matrix off what it is aligned to, or pads its lines until they are.
void align(MatrixLayout& matrix, uint32_t packed, uint32_t wanted) {
  if (wanted > packed) {
    int64_t& stride = matrix.stride_col == 1 ? matrix.stride_row : matrix.stride_col;
    const int64_t elements = kWidest / size_of(matrix.dtype);
    stride = ceil_div(stride, elements) * elements;
    matrix.stride_batch = ceil_div(matrix.stride_batch, elements) * elements;
  }
  if (wanted != packed) matrix.alignment = wanted;
}

/// What `place` is to be given for matrices like those of `p`.
Matrices matrices_of(const GemmProblem& p) {
  const auto shared = [&](const MatrixLayout& matrix, int64_t entries) {
    return p.conv.kind == Conv::none && entries > 1 && matrix.stride_batch == 0;
  };
  const OperandLayouts operands = operand_layouts(p);
  return {
      .a = p.a.dtype,
      .b = p.b.dtype,
      .d = p.d.dtype,
      .c = p.has_c ? p.c.dtype : p.d.dtype,
      .bias = p.bias_dtype,
      .a_row_major = operands.a.major == Major::k,
      .b_row_major = operands.b.major == Major::mn,
      // A packed column has rows of one element, too: what it is to a transposed kernel are its columns.
      .d_row_major = output_order(p).value_or(Order::row) == Order::row && (p.n > 1 || p.m == 1 || p.d.stride_row != 1),
      .broadcasts_a = shared(p.a, entries_of_a(p)),
      .broadcasts_b = shared(p.b, entries_of_b(p))};
}

Alignments packed_alignments(GemmProblem p, const Matrices& matrices) {
  place(matrices, p);
  return alignments(p);
}

std::string conv_text(const ConvLayout& conv) {
  std::string text = fmt::format(" {}", to_string(conv.kind));
  for (const ConvAxis& axis : conv.axes)
    text += fmt::format(" {}:{}/{}p{},{}d{}", axis.size, axis.filter, axis.stride, axis.pad_begin, axis.pad_end,
                        axis.dilation);
  return text;
}

/// Reads a text from its begin; what fails once fails for good.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  explicit operator bool() const { return sound_; }
  bool at_end() const { return rest_.empty(); }

  /// Whether `expected` comes next; if so it is read.
  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  /// Whether the word comes next, and then a space or the end.
  bool take_word(std::string_view word) {
    const std::string_view before = rest_;
    if (take(" ") && take(word) && (rest_.empty() || rest_[0] == ' ')) return true;
    rest_ = before;
    return false;
  }

  void expect(std::string_view expected) { sound_ = sound_ && take(expected); }

  /// A count of 31 bits.
  int64_t number() {
    int32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    sound_ = sound_ && error == std::errc() && value >= 0;
    if (sound_) rest_.remove_prefix(size_t(end - rest_.data()));
    return sound_ ? value : 0;
  }

  std::string_view word() {
    expect(" ");
    const std::string_view found = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(found.size());
    return found;
  }

  template <class Enum>
  Enum name() {
    const auto found = named<Enum>(word());
    sound_ = sound_ && found;
    return found.value_or(Enum());
  }

  /// The enumerator of the next word, if it is one; only then the word is read.
  template <class Enum>
  Enum optional_name() {
    Reader ahead = *this;
    const auto found = ahead.named<Enum>(ahead.word());
    if (!ahead.sound_ || !found || *found == Enum()) return Enum();
    *this = ahead;
    return *found;
  }

  void fail() { sound_ = false; }

 private:
  template <class Enum>
  static std::optional<Enum> named(std::string_view name) {
    try {
      return from_string<Enum>(name);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::string_view rest_;
  bool sound_ = true;
};

/// Whether its letter is that of a matrix with contiguous rows.
bool read_row_major(Reader& in) {
  if (in.take("t")) return true;
  in.expect("n");
  return false;
}

void read_groups(Reader& in, GemmProblem& p) {
  if (!in.take_word("grouped")) return;
  p.groups.dimension = in.name<Grouping>();
  if (p.groups.dimension == Grouping::none) in.fail();
  const bool aligned = in.take_word("aligned");
  if (aligned || in.take_word("counts")) {
    p.groups.bounds = aligned ? GroupBounds::aligned_ends : GroupBounds::counts;
    in.expect(" ");
    p.groups.spacing = in.number();
  }
  if (in.take_word("expected")) {
    in.expect(" ");
    p.groups.expected_m = in.number();
  }
  p.groups.zero_rest = p.groups.dimension != Grouping::k;
  if (!in.take_word("gather")) return;
  in.expect(" ");
  p.gather = {.given = true, .rows = in.number()};
  in.expect(" by ");
  p.gather.divisor = in.number();
  if (p.gather.divisor < 1) in.fail();
}

void read_scaling(Reader& in, GemmProblem& p) {
  if (in.take_word("scaled")) p.scale_a.kind = p.scale_b.kind = Scaling::vector;
  if (!in.take_word("blocks")) return;
  p.scale_a.kind = p.scale_b.kind = Scaling::block;
  in.expect(" ");
  p.scale_a.rows = uint32_t(in.number());
  in.expect("x");
  p.scale_b.rows = uint32_t(in.number());
  if (p.scale_a.rows == 0 || p.scale_b.rows == 0) in.fail();
}

void read_weights(Reader& in, GemmProblem& p) {
  if (!in.take_word("weights")) return;
  p.weights_b.format = in.name<WeightFormat>();
  if (p.weights_b.format == WeightFormat::none) in.fail();
  in.expect(" ");
  p.weights_b.group = in.number();
  p.weights_b.has_zero = in.take_word("zeros");
  p.scale_b = {};  // "scaled" are rows of a
}

void read_conv(Reader& in, GemmProblem& p) {
  ConvLayout& conv = p.conv;
  conv.kind = in.optional_name<Conv>();
  if (conv.kind == Conv::none) return;
  const auto next = [&](const char* before) {
    in.expect(before);
    return int32_t(in.number());
  };
  for (ConvAxis& axis : conv.axes) {
    axis.size = next(" "), axis.filter = next(":"), axis.stride = next("/");
    axis.pad_begin = next("p"), axis.pad_end = next(","), axis.dilation = next("d");
    if (axis.filter == 0 || axis.stride == 0 || axis.dilation == 0) in.fail();
  }
  if (in.take_word("division")) conv.division = in.name<Division>();
  if (!in) return;
  // The product's sizes say the rest.
  conv.images = 1;
  const bool forward = conv.kind == Conv::fprop, backward = conv.kind == Conv::dgrad;
  const int64_t of_image = backward ? image_pixels(conv) : output_pixels(conv),
                pixels = forward || backward ? p.m : p.k;
  const int64_t of_filter = taps(conv), gathered = forward || backward ? p.k : p.n;
  conv.images = of_image == 0 ? 0 : pixels / of_image;
  const int64_t channels = gathered / of_filter, other = conv.kind == Conv::wgrad ? p.m : p.n;
  conv.channels = backward ? other : channels;
  conv.filters = backward ? channels : other;
  const ProductSizes sizes = product_sizes(conv);
  if (sizes.m != p.m || sizes.n != p.n || sizes.k != p.k) in.fail();
}

}  // namespace

std::string problem_text(const GemmProblem& p) {
  const Matrices matrices = matrices_of(p);
  std::string text = fmt::format("{}x{}x{}x{} {}{}{} {} {}", p.m, p.n, p.k, p.batch, matrices.a_row_major ? 't' : 'n',
                                 matrices.b_row_major ? 't' : 'n', matrices.d_row_major ? "" : "n",
                                 to_string(p.a.dtype), to_string(p.d.dtype));
  const auto add = [&]<class... Args>(bool applies, fmt::format_string<Args...> format, Args&&... args) {
    if (applies) text += fmt::format(format, std::forward<Args>(args)...);
  };
  add(p.b.dtype != p.a.dtype, " by {}", to_string(p.b.dtype));
  const GroupLayout& groups = p.groups;
  add(groups.dimension != Grouping::none, " grouped {}", to_string(groups.dimension));
  add(groups.bounds == GroupBounds::aligned_ends, " aligned {}", groups.spacing);
  add(groups.bounds == GroupBounds::counts, " counts {}", groups.spacing);
  add(groups.expected_m > 0, " expected {}", groups.expected_m);
  add(p.gather.given, " gather {} by {}", p.gather.rows, p.gather.divisor);
  add(p.scale_a.kind == Scaling::vector, " scaled");
  add(p.scale_a.kind == Scaling::block, " blocks {}x{}", p.scale_a.rows, p.scale_b.rows);
  add(p.weights_b.format != WeightFormat::none, " weights {} {}{}", to_string(p.weights_b.format), p.weights_b.group,
      p.weights_b.has_zero ? " zeros" : "");
  add(p.fast_accumulation, " fast");
  add(p.precision != Precision::tf32, " {}", to_string(p.precision));
  add(p.has_zero, " zero");
  add(p.has_scale_d, " scale_d");
  add(p.has_amax, " amax");
  add(finds_scales(p), " out_scale");
  add(p.ue8m0_scale_out, " ue8m0");
  add(p.has_c, " c {}", to_string(p.c.dtype));
  add(p.bias != Bias::none, " bias {} {}", to_string(p.bias), to_string(p.bias_dtype));
  // Functions other than activations have no place here, but gates: they change how fast a product is.
  const Activation activation = is_gated(p) ? Activation::swiglu : activation_of(p);
  add(activation != Activation::none, " {}", to_string(activation));
  add(matrices.broadcasts_a, " broadcast a");
  add(matrices.broadcasts_b, " broadcast b");
  const Alignments own = alignments(p);
  add(own != packed_alignments(p, matrices), " lines {} {} {}", own.a, own.b, own.d);
  if (p.conv.kind != Conv::none) text += conv_text(p.conv);
  add(p.conv.division != Division::automatic, " division {}", to_string(p.conv.division));
  return text;
}

std::optional<GemmProblem> parse_problem(std::string_view text) {
  Reader in(text);
  GemmProblem p;
  p.m = in.number();
  in.expect("x");
  p.n = in.number();
  in.expect("x");
  p.k = in.number();
  in.expect("x");
  p.batch = in.number();
  Matrices matrices{};
  in.expect(" ");
  matrices.a_row_major = read_row_major(in);
  matrices.b_row_major = read_row_major(in);
  matrices.d_row_major = !in.take("n");
  matrices.a = in.name<DType>();
  matrices.c = matrices.d = in.name<DType>();
  matrices.b = in.take_word("by") ? in.name<DType>() : matrices.a;
  read_groups(in, p);
  read_scaling(in, p);
  read_weights(in, p);
  p.fast_accumulation = in.take_word("fast");
  p.precision = in.optional_name<Precision>();
  p.has_zero = in.take_word("zero");
  p.has_scale_d = in.take_word("scale_d");
  p.has_amax = in.take_word("amax");
  if (in.take_word("out_scale")) p.scale_out.kind = Scaling::block;
  p.ue8m0_scale_out = in.take_word("ue8m0");
  p.has_c = in.take_word("c");
  if (p.has_c) matrices.c = in.name<DType>();
  matrices.bias = p.bias_dtype;
  if (in.take_word("bias")) {
    p.bias = in.name<Bias>();
    matrices.bias = in.name<DType>();
  }
  p.epilogue = epilogue_of(in.optional_name<Activation>());
  matrices.broadcasts_a = in.take_word("broadcast a");
  matrices.broadcasts_b = in.take_word("broadcast b");
  std::optional<Alignments> lines;
  if (in.take_word("lines")) {
    const auto next = [&] {
      in.expect(" ");
      return uint32_t(in.number());
    };
    lines = {.a = next(), .b = next(), .d = next()};
  }
  read_conv(in, p);
  if (!in || !in.at_end()) return std::nullopt;
  place(matrices, p);
  if (lines) {
    const Alignments packed = alignments(p);
    align(p.a, packed.a, lines->a);
    align(p.b, packed.b, lines->b);
    align(p.d, packed.d, lines->d);
    p.c.stride_row = p.d.stride_row, p.c.stride_col = p.d.stride_col, p.c.stride_batch = p.d.stride_batch;
  }
  // One spelling for each problem.
  return problem_text(p) == text ? std::optional(p) : std::nullopt;
}

}  // namespace cleave
