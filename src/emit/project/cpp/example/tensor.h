// What the example is made of: random elements, on the host and on the GPU, and sums of them.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cleave/core/element.h"
#include "config.h"
#include "driver.h"

namespace emitted::operation::example {

inline std::mt19937 generator(0);

/// A number below `count`.
inline int64_t draw(int64_t count) {
  return std::uniform_int_distribution<int64_t>(0, count - 1)(generator);
}

/// Elements on the host, and a copy on the GPU.
class Tensor {
 public:
  Tensor(cleave::DType type, int64_t count)
      : type_(type), count_(count), host_(size_t(std::max<int64_t>(count, 1)) * size_of(type)) {
    DRIVER_CALL(cuMemAlloc, &device_, host_.size());
    upload();
  }
  ~Tensor() { DRIVER(cuMemFree)(device_); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  template <class T = void>
  T* device() const {
    return reinterpret_cast<T*>(device_);
  }
  cleave::DType type() const { return type_; }
  double operator[](int64_t i) const { return cleave::load_element(type_, host_.data(), i); }
  void download() { DRIVER_CALL(cuMemcpyDtoH, host_.data(), device_, host_.size()); }

  void fill(float low, float high) {
    std::uniform_real_distribution<float> value(low, high);
    for (int64_t i = 0; i < count_; ++i) cleave::store_element(type_, host_.data(), i, value(generator));
    upload();
  }
  /// An operand: 8-bit integers are larger.
  void fill() { type_ == cleave::DType::i8 ? fill(-6, 6) : fill(-1, 1); }

  template <class Value>
  void assign(const std::vector<Value>& values) {
    std::memcpy(host_.data(), values.data(), values.size() * sizeof(Value));
    upload();
  }

 private:
  void upload() { DRIVER_CALL(cuMemcpyHtoD, device_, host_.data(), host_.size()); }

  cleave::DType type_;
  int64_t count_;
  std::vector<uint8_t> host_;
  CUdeviceptr device_ = 0;
};

/// Where an element of a matrix lies.
inline int64_t at(const cleave::MatrixLayout& x, int64_t entry, int64_t row, int64_t column) {
  return entry * x.stride_batch + row * x.stride_row + column * x.stride_col;
}

/// What rounding of products may add to a sum, relative to its terms.
inline constexpr double kProductError = kOperation.precision == cleave::Precision::tf32     ? 0x1p-9
                                        : kOperation.precision == cleave::Precision::bf16x3 ? 0x1p-14
                                                                                            : 0x1p-18;

/// A sum, and how large its terms are.
struct Sum {
  double value = 0, magnitude = 0;

  void add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
  void scale(double factor) {
    value *= factor;
    magnitude *= std::abs(factor);
  }
};

/// An element of D: its entry of the batch (or group), its row and its column.
struct Coord {
  int64_t batch, row, column;
};

/// What one element of D is to be, and what is to be made beside it.
struct Sample {
  struct Other {
    Sum sum;
    const Tensor* tensor;
    int64_t index;
  };

  Sum d;
  int64_t index;  // of D's element
  std::vector<Other> others = {};
};

}  // namespace emitted::operation::example
