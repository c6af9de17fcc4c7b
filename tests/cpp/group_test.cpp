// Groups of threads on the host: barriers, what they say of peers that do not come, and memory that is shared.
#include "cleave/group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "cleave/peers/arrival.h"
#include "cleave/problem.h"

namespace cleave {
namespace {

/// Blocks of zeros, and what each thread of so many makes of them.
class Ranks {
 public:
  explicit Ranks(int size) : size_(size), block_bytes_(Group::reserved(size) + 4096) {
    for (int r = 0; r < size; ++r) {
      memory_.emplace_back(block_bytes_ / sizeof(uint64_t));
      blocks_.push_back(memory_.back().data());
    }
  }

  void* block(int rank) const { return blocks_[size_t(rank)]; }
  std::shared_ptr<Group> group(int rank) { return Group::from_pointers(rank, kCpu, blocks_, block_bytes_); }

  template <class Run>
  void run(const Run& run) {
    std::vector<std::jthread> threads;
    for (int r = 0; r < size_; ++r) threads.emplace_back([&, r] { run(r, *group(r)); });
  }

 private:
  const int size_;
  const size_t block_bytes_;
  std::vector<std::vector<uint64_t>> memory_;  // of no type with padding, which nothing makes zero
  std::vector<void*> blocks_;
};

/// For the life of a test.
class Timeout {
 public:
  explicit Timeout(const char* seconds) { setenv("CLEAVE_PEER_TIMEOUT", seconds, 1); }
  ~Timeout() { unsetenv("CLEAVE_PEER_TIMEOUT"); }
};

std::string error_of(const auto& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

TEST(Group, ABarrierOrdersWhatRanksWrite) {
  for (const int size : {1, 2, 3, 8}) {
    Ranks ranks(size);
    ranks.run([&](int rank, const Group& group) {
      std::mt19937 random{uint32_t(rank)};
      for (uint32_t call = 0; call < 400; ++call) {
        // Two places in turn, as nothing ends a call but the next barrier.
        const auto place = [&](int owner, int from) {
          return static_cast<uint32_t*>(group.staging(owner)) + call % 2 * size + from;
        };
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        for (int owner = 0; owner < size; ++owner) *place(owner, rank) = call * 100 + uint32_t(rank);
        group.barrier("a call", nullptr);
        for (int from = 0; from < size; ++from) ASSERT_EQ(*place(rank, from), call * 100 + uint32_t(from));
      }
    });
  }
}

TEST(Group, APeerThatDoesNotComeIsNamed) {
  const Timeout timeout("0.05");
  Ranks ranks(3);
  ranks.run([&](int rank, const Group& group) {
    if (rank == 2) return;
    const std::string said = error_of([&] { group.barrier("layer 3's product", nullptr); }, ErrorCode::peer);
    EXPECT_NE(said.find("for rank 2 in layer 3's product"), std::string::npos) << said;
    // And then at once, whoever comes.
    EXPECT_EQ(error_of([&] { group.barrier("another", nullptr); }, ErrorCode::peer), said);
    EXPECT_TRUE(said.starts_with(group.problem()));
  });
}

TEST(Group, OtherCallsAreToldApart) {
  Ranks ranks(2);
  ranks.run([&](int rank, const Group& group) {
    group.barrier("first", nullptr);
    const std::string said = error_of([&] { group.barrier(rank == 0 ? "first" : "second", nullptr); }, ErrorCode::peer);
    const char* const expected = rank == 0 ? "rank 0 calls first where rank 1 calls what rank 0 has never called"
                                           : "rank 1 calls second where rank 0 calls first";
    EXPECT_TRUE(said.starts_with(expected)) << said;
  });
}

TEST(Group, AbortEndsTheWait) {
  Ranks ranks(2);
  const auto group = ranks.group(0);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    group->abort();
  });
  const std::string said = error_of([&] { group->barrier("a call", nullptr); }, ErrorCode::peer);
  EXPECT_TRUE(said.starts_with("the group was aborted while rank 0 waited for rank 1 in a call")) << said;
  EXPECT_NE(group->problem(), "");
}

TEST(Group, ResetMakesABrokenGroupWholeAgain) {
  const Timeout timeout("2");
  for (const int size : {1, 2, 3, 8}) {
    Ranks ranks(size);
    ranks.run([&](int rank, const Group& group) {
      constexpr int kRounds = 11;
      for (int round = 0; round < kRounds; ++round) {
        const bool last = round + 1 == kRounds;  // one rank leaves, and the others wait for it
        if (last && rank == 0) group.abort();
        if (size > 1) {
          const auto call = last ? std::string("a call") : fmt::format("rank {}", rank);
          EXPECT_NE(error_of([&] { group.barrier(call, nullptr); }, ErrorCode::peer), "");
        }
        group.reset();
        ASSERT_EQ(group.problem(), "");
        const auto place = [&](int of) { return static_cast<uint32_t*>(group.staging(of)) + round % 2; };
        *place((rank + 1) % size) = uint32_t(rank + 100 * round);
        for (int call = 0; call < 3; ++call) group.barrier("a call", nullptr);
        ASSERT_EQ(*place(rank), uint32_t((rank + size - 1) % size + 100 * round));
      }
    });
  }
}

TEST(Group, ResetIsRefusedWhereARankDoesNotCome) {
  const Timeout timeout("0.5");
  Ranks ranks(3);
  std::barrier met(2), all(3);
  ranks.run([&](int rank, const Group& group) {
    if (rank != 1) {
      EXPECT_TRUE(error_of([&] { group.barrier("a call", nullptr); }, ErrorCode::peer).starts_with(group.problem()));
      met.arrive_and_wait();
      const std::string said = error_of([&] { group.reset(); }, ErrorCode::peer);
      EXPECT_NE(said.find("for rank 1 in reset(), which did not come: it has died"), std::string::npos) << said;
      EXPECT_NE(group.problem(), "");
    }
    all.arrive_and_wait();  // the other one was late
    group.reset();
    group.barrier("a call", nullptr);
    EXPECT_EQ(group.problem(), "");
  });
}

TEST(Group, AbortEndsAReset) {
  Ranks ranks(2);
  const auto group = ranks.group(0);
  group->abort();  // which would be mended
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    group->abort();
  });
  EXPECT_EQ(error_of([&] { group->reset(); }, ErrorCode::peer), "reset() was aborted while rank 0 waited for rank 1");
  EXPECT_EQ(group->problem(), "the group was aborted");
}

/// Ranks that give up and begin again, at any moment, agree in the end.
TEST(Group, ResetsThatFailCanBeRepeated) {
  const Timeout timeout("0.02");
  for (int trial = 0; trial < 20; ++trial) {
    Ranks ranks(3);
    std::atomic<int> failures = 0, through = 0;
    ranks.run([&](int rank, const Group& group) {
      std::mt19937 random{uint32_t(3 * trial + rank)};
      while (through == 0) {  // one that is through has met the others
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
        try {
          group.reset();
          for (int call = 0; call < 10; ++call) group.barrier("a call", nullptr);
          ++through;
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::peer);
          ASSERT_LT(++failures, 3000);
        }
      }
    });
  }
}

TEST(Group, BarriersBesideAreASequenceOfTheirOwn) {
  Ranks ranks(2);
  ranks.run([&](int rank, const Group& group) {
    for (int call = 0; call < 50; ++call) {
      // A copy's barrier and the call's may come in any order: two threads of each rank.
      std::jthread copies([&] { group.barrier("a copy", nullptr, true); });
      if (rank == call % 2) std::this_thread::yield();
      group.barrier("a call", nullptr);
    }
    EXPECT_EQ(group.problem(), "");
  });
}

TEST(Group, GathersOnePlaceOfEveryRank) {
  for (const int size : {1, 3}) {
    Ranks ranks(size);
    ranks.run([&](int rank, const Group& group) {
      for (const size_t bytes : {0, 1, 16, 1001}) {
        char* const own = static_cast<char*>(group.staging(rank)) + 1024;
        std::fill_n(own, bytes, char('a' + rank));
        std::string all(bytes * size_t(size), '-');
        group.gather(own, bytes, all.data(), "letters", nullptr);
        for (int r = 0; r < size; ++r)
          EXPECT_EQ(all.substr(size_t(r) * bytes, bytes), std::string(bytes, char('a' + r)));
        group.barrier("the end", nullptr);
      }
      const auto refused = [&](const void* own, size_t bytes) {
        return error_of([&] { group.gather(own, bytes, nullptr, "letters", nullptr); }, ErrorCode::invalid_argument);
      };
      const char* const staging = static_cast<const char*>(group.staging(rank));
      EXPECT_NE(refused(&group, 1).find("they must be in this rank's staging"), std::string::npos);
      EXPECT_NE(refused(staging, group.bytes() + 1).find("they must be in this rank's staging"), std::string::npos);
      EXPECT_NE(refused(staging + 8, 8).find("it must be a multiple of 16 bytes"), std::string::npos);
    });
  }
}

TEST(Group, PushesRowsToEveryRank) {
  for (const int size : {1, 2, 5}) {
    Ranks ranks(size);
    ranks.run([&](int rank, const Group& group) {
      std::mt19937 random{uint32_t(rank)};
      for (int call = 0; call < 100; ++call) {
        const size_t share = size_t(1 + call % 50), place = size_t(call % 2) * 2048;
        const size_t bytes = rank + 1 < size ? share : size_t(call) % (share + 1);  // the last one has fewer
        const std::string own(bytes, char('a' + rank)), other(share, char('A' + rank));
        std::string all(share * size_t(size), '-'), scales = all;
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        const bool keeps = call % 3 > 0;
        const Group::Rows parts[] = {{own.data(), bytes, share, place, keeps ? all.data() : nullptr},
                                     {other.data(), share, share, place + 1024, keeps ? scales.data() : nullptr}};
        group.push(parts, "letters", nullptr);
        const auto rows_of = [&](const std::string& out, size_t at, int from) {
          const char* const rows = keeps ? out.data() : static_cast<const char*>(group.staging(rank)) + at;
          return std::string_view(rows + size_t(from) * share, share);
        };
        for (int from = 0; from < size; ++from) {
          const size_t written = from + 1 < size ? share : size_t(call) % (share + 1);
          ASSERT_EQ(rows_of(all, place, from).substr(0, written), std::string(written, char('a' + from)));
          ASSERT_EQ(rows_of(scales, place + 1024, from), std::string(share, char('A' + from)));
        }
      }
      const auto refused = [&](const std::vector<Group::Rows>& parts) {
        return error_of([&] { group.push(parts, "letters", nullptr); }, ErrorCode::invalid_argument);
      };
      char out = 0;
      EXPECT_EQ(refused({}), "parts are 0; push() takes 1 to 2");
      EXPECT_NE(refused({{.share = group.bytes() / size_t(size) + 1}}).find("it must be in the staging"),
                std::string::npos);
      EXPECT_NE(refused({{.share = 1, .place = 8}}).find("at a multiple of 16"), std::string::npos);
      EXPECT_EQ(refused({{.bytes = 2, .share = 1}}), "a rank has 2 bytes of a share of 1");
      EXPECT_NE(refused({{.share = 1, .out = &out}, {.share = 1}}), "");
    });
  }
}

TEST(Group, SharedMemoryIsTheSameEverywhere) {
  constexpr int kSize = 3;
  std::vector<std::string> said(kSize);
  std::barrier meeting(kSize);
  const auto share = [&](int rank, size_t bytes) {
    return Group::share(rank, kSize, kCpu, bytes, [&](const std::string& own) {
      said[size_t(rank)] = own;
      meeting.arrive_and_wait();
      const std::vector<std::string> all = said;
      meeting.arrive_and_wait();
      return all;
    });
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = share(rank, 1000);
      EXPECT_EQ(group->bytes(), 1000u);
      for (int owner = 0; owner < kSize; ++owner) static_cast<char*>(group->staging(owner))[rank] = char('a' + rank);
      group->barrier("letters", nullptr);
      EXPECT_EQ(std::string_view(static_cast<const char*>(group->staging(rank)), 4), std::string_view("abc\0", 4));
      const std::string refused = error_of([&] { share(rank, rank == 1 ? 1000 : 999); }, ErrorCode::unsupported);
      EXPECT_NE(refused.find("they must be the same on all ranks"), std::string::npos) << refused;
    });
  }
}

TEST(Group, GathersFewerThanTwoToTheThirtyOnePieces) {
  Ranks ranks(2);
  void* const blocks[] = {ranks.block(0), ranks.block(1)};
  const auto group = Group::from_pointers(0, kCpu, blocks, size_t(1) << 40);  // of which nothing is touched
  const auto refused = [&](size_t bytes, uintptr_t out) {
    const auto gather = [&] { group->gather(group->staging(0), bytes, reinterpret_cast<void*>(out), "much", nullptr); };
    return error_of(gather, ErrorCode::invalid_argument);
  };
  EXPECT_EQ(refused(size_t(1) << 30, 17),
            "bytes is 1073741824; with 2 ranks and such an out they must be fewer than 1073741824");
  EXPECT_NE(refused(size_t(1) << 32, 20).find("fewer than 4294967296"), std::string::npos);
  EXPECT_NE(refused(size_t(1) << 34, 32).find("fewer than 17179869184"), std::string::npos);
}

TEST(Group, BadArgumentsAreNamed) {
  const auto share = [](int rank, int size, size_t bytes) {
    return error_of([&] { Group::share(rank, size, kCpu, bytes, {}); }, ErrorCode::invalid_argument);
  };
  EXPECT_EQ(share(0, 17, 1), "size is 17; a group has 1 to 16 ranks");
  EXPECT_EQ(share(2, 2, 1), "rank is 2; it must be from 0 to 1");
  EXPECT_NE(share(0, 1, 0), "");
  alignas(16) char memory[32];
  void* const blocks[] = {memory + 1};
  EXPECT_NE(error_of([&] { Group::from_pointers(0, kCpu, blocks, 1 << 20); }, ErrorCode::invalid_argument), "");
  EXPECT_NE(error_of([&] { Ranks(2).group(0)->staging(2); }, ErrorCode::invalid_argument), "");
  const Timeout timeout("soon");
  EXPECT_EQ(error_of([] { Ranks(2).group(0); }, ErrorCode::invalid_argument),
            "CLEAVE_PEER_TIMEOUT is \"soon\"; it must be a number of seconds above 0");
}

TEST(Arrivals, EpochsGoOnPastTheLastNumber) {
  constexpr Arrival last{0xffffffffu, 7};
  EXPECT_EQ(Arrival::of(last.bits()).epoch, last.epoch);
  EXPECT_EQ(Arrival::of(last.bits()).signature, 7u);
  GroupHeader header;
  EXPECT_NE(arrival_of(header, last.epoch, 0, 3), arrival_of(header, last.epoch + 1, 0, 3));
}

}  // namespace
}  // namespace cleave
