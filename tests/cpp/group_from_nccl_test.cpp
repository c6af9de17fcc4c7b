// Groups of threads whose communicator is that of a fake libnccl.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../fake_nccl/nccl.h"
#include "cleave/group.h"
#include "cleave/problem.h"

namespace cleave {
namespace {

std::string error_of(void* communicator, ErrorCode code) {
  try {
    Group::from_nccl(communicator, 1000);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

class GroupFromNccl : public testing::Test {
 protected:
  /// As a program would that made the communicator.
  void SetUp() override { ASSERT_NE(dlopen(CLEAVE_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror(); }
};

TEST_F(GroupFromNccl, HasMemoryThatAllRanksSee) {
  constexpr int kSize = 3;
  std::vector<std::string> said(kSize);
  std::barrier meeting(kSize);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      FakeCommunicator communicator{rank, kSize, kCpu, [&](const void* own, void* all, size_t bytes) {
                                      said[size_t(rank)].assign(static_cast<const char*>(own), bytes);
                                      meeting.arrive_and_wait();
                                      for (size_t r = 0; r < kSize; ++r)
                                        std::memcpy(static_cast<char*>(all) + r * bytes, said[r].data(), bytes);
                                      meeting.arrive_and_wait();
                                      return 0;
                                    }};
      const auto group = Group::from_nccl(&communicator, 1000);
      EXPECT_EQ(group->rank(), rank);
      EXPECT_EQ(group->size(), kSize);
      EXPECT_EQ(group->bytes(), 1000u);
      for (int owner = 0; owner < kSize; ++owner) static_cast<char*>(group->staging(owner))[rank] = char('a' + rank);
      group->barrier("letters", nullptr);
      EXPECT_EQ(std::string_view(static_cast<const char*>(group->staging(rank)), 4), std::string_view("abc\0", 4));
    });
  }
}

TEST_F(GroupFromNccl, SaysWhatNcclRefuses) {
  FakeCommunicator broken{0, 2, kCpu, [](const void*, void*, size_t) { return 6; }};
  EXPECT_EQ(error_of(&broken, ErrorCode::driver), "ncclAllGather of libnccl.so.2 says 6, an ncclResult_t");
  EXPECT_EQ(error_of(nullptr, ErrorCode::invalid_argument), "comm is null; it must be a communicator of NCCL's");
}

}  // namespace
}  // namespace cleave
