#include "emit/example.h"

#include <fmt/format.h>

namespace cleave {
namespace {

/// How a value of D may differ from a sum in double precision: by half a unit in the last place,
/// and by `absolute` near zero.
struct Rounding {
  const char* absolute;
  const char* unit;
  const char* largest;  ///< what is beyond is saturated; nullptr if nothing is expected to be
};

Rounding rounding_of(DType type) {
  switch (type) {
    case DType::f16:
      return {"1e-4", "0x1p-10", nullptr};
    case DType::bf16:
      return {"1e-4", "0x1p-7", nullptr};
    case DType::f32:
      return {"1e-5", "0x1p-20", nullptr};
    case DType::i8:
      return {"0.51", "0x1p-20", "127"};
    case DType::e4m3:
      return {"0.01", "0x1p-3", "448"};
    case DType::e5m2:
      return {"0.01", "0x1p-2", "57344"};
    case DType::i32:
      break;
  }
  return {"1e-3", "0", nullptr};
}

void describe_range(const std::string& name, DType type, Vocabulary& v) {
  v.words[name + "_low"] = type == DType::i8 ? "-6" : "-1";
  v.words[name + "_high"] = type == DType::i8 ? "6" : "1";
}

void describe_matrix(const std::string& name, const std::string& rows, const std::string& columns,
                     const std::string& row, const std::string& column, Vocabulary& v) {
  const bool batched = v.flags[name + "_batched"], by_row = v.flags[name + "_row"];
  const std::string size = fmt::format("{} * {}", rows, columns);
  v.words[name + "_count"] = batched ? fmt::format("{} * {}", v.words["batch"], size) : size;
  v.words[name + "_index"] =
      fmt::format("{}{} * {} + {}", batched ? fmt::format("g * {} + ", size) : "",
                  by_row ? row : column, by_row ? columns : rows, by_row ? column : row);
}

void describe_scales(const std::string& name, const ScaleLayout& layout, const std::string& lines,
                     const std::string& line, const std::string& blocks, Vocabulary& v) {
  const bool batched = v.flags[name + "_batched"];
  std::string size = lines, index = line;
  if (layout.kind == Scaling::block) {
    const std::string at = layout.rows == 1 ? line : fmt::format("{} / {}", line, layout.rows);
    size = fmt::format("{} * k_blocks", blocks);
    index = v.flags[name + "_by_k"] ? fmt::format("{} * k_blocks + block", at)
                                    : fmt::format("block * {} + {}", blocks, at);
  } else if (layout.stride_row == 0) {
    size = "1";
    index = "0";
  }
  const bool several = batched && size != "1";
  v.words[name + "_count"] = several ? fmt::format("{} * {}", v.words["batch"], size) : size;
  v.words[name + "_index"] = several ? fmt::format("g * {} + {}", size, index) : index;
}

}  // namespace

void describe_example(const GemmProblem& p, Vocabulary& v) {
  const Rounding rounding = rounding_of(p.d.dtype);
  v.words["d_rounding"] = rounding.absolute;
  v.words["d_unit"] = rounding.unit;
  v.words["d_largest"] = rounding.largest ? rounding.largest : "";
  v.flags["d_saturates"] = rounding.largest != nullptr;
  const bool ieee = p.precision == Precision::ieee;
  v.words["product_unit"] = ieee ? "0x1p-18" : "0x1p-9";
  v.words["float32_tolerance"] = ieee ? "2e-5" : "2e-3";
  const bool is_conv = p.conv.kind != Conv::none;
  const std::string depth = is_conv ? v.words["depth_of_sums"] : "double(k)";
  v.words["example_alpha"] =
      p.d.dtype == DType::i32 ? "1" : fmt::format("1 / std::sqrt({})", depth);
  describe_range("a", p.a.dtype, v);
  describe_range("b", p.b.dtype, v);
  if (is_conv) return;
  describe_matrix("a", "m", "k", "i", "depth", v);
  describe_matrix("b", "k", "columns", "depth", "column", v);
  describe_matrix("d", "m", "n", "i", "j", v);
  describe_scales("scale_a", p.scale_a, "m", "i", "a_blocks", v);
  describe_scales("scale_b", p.scale_b, "columns", "column", "b_blocks", v);
}

}  // namespace cleave
