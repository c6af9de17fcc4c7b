// A rank of a group whose others are memory alone, and what its calls give two streams of a driver that is not there.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "emitted_project.h"
#include "fake_driver.h"
#include "peers/places.h"

namespace cleave {

class OneOfRanks : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kRanks = 3, kRank = 1, kOthers = kRanks - 1;
  static constexpr size_t kPlace = 1 << 21;
  inline static void* const kStream = reinterpret_cast<void*>(64);

  OneOfRanks() {
    fake_driver_set_params_bytes(0);  // launches have parameters of several types
    const size_t bytes = Group::reserved(kRanks) + Places::kCount * kPlace;
    for (auto& block : blocks_) block = std::make_unique<char[]>(bytes + 16);
    std::array<void*, kRanks> aligned;
    for (int r = 0; r < kRanks; ++r)
      aligned[r] = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(blocks_[r].get()) + 15) / 16 * 16);
    places_ = std::make_unique<Places>(Group::from_pointers(kRank, 0, aligned, bytes));
  }
  ~OneOfRanks() override { fake_driver_set_params_bytes(sizeof(GemmParams)); }

  /// What is given the stream that computes; copies beside; and meetings beside.
  struct Given {
    std::vector<int> computed, copied, met;
  };

  /// Numbers of what a call gives, which is in the second place: one before it prepares kernels.
  template <class Call>
  static Given given_by(const Call& call) {
    call();
    const int before = fake_driver_work_count();
    call();
    Given given;
    for (int i = before; i < fake_driver_work_count(); ++i)
      (work(i).stream == kStream ? given.computed : copies(i) ? given.copied : given.met).push_back(i);
    return given;
  }

  static const fake_driver::Work& work(int number) { return *fake_driver_work(number); }
  static bool copies(int number) { return work(number).bytes != 0; }
  static bool behind(int number, int other) { return work(number).done_before.contains(other); }

  std::array<std::unique_ptr<char[]>, kRanks> blocks_;
  std::unique_ptr<Places> places_;
};

}  // namespace cleave
