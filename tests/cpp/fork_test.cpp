// What the child of a fork() can do whatever other threads were about.
#include "process/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <semaphore>
#include <thread>

#include "cleave/gemm.h"
#include "gemm_problems.h"

namespace cleave {
namespace {

/// Whether `body` returns true in a child, within seconds.
bool holds_in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that hangs
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// A thread that is inside `hold(wait)` until this goes.
class Holder {
 public:
  explicit Holder(const std::function<void(const std::function<void()>&)>& hold)
      : thread_([this, hold] {
          hold([this] {
            inside_.release();
            leave_.acquire();
          });
        }) {
    inside_.acquire();
  }
  ~Holder() { leave_.release(); }

 private:
  std::binary_semaphore inside_{0}, leave_{0};
  std::jthread thread_;
};

TEST(Fork, AMutexIsFreeInTheChild) {
  ForkMutex mutex;
  const Holder holder([&](const auto& wait) {
    const std::lock_guard lock(mutex);
    wait();
  });
  EXPECT_TRUE(holds_in_child([&] {
    const std::lock_guard lock(mutex);
    return true;
  }));
  // Grandchildren too, of a child that holds it.
  EXPECT_TRUE(holds_in_child([&] {
    const std::lock_guard lock(mutex);
    return holds_in_child([&] {
      const std::lock_guard again(mutex);
      return true;
    });
  }));
}

TEST(Fork, AMutexExcludes) {
  ForkMutex mutex;
  int count = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20'000; ++i) {
          const std::lock_guard lock(mutex);
          ++count;
        }
      });
    }
  }
  EXPECT_EQ(count, 80'000);
}

TEST(Fork, AValueThatWasBeingMadeIsMadeAnew) {
  static constinit Lazy<int> value;
  const Holder holder([&](const auto& wait) {
    value.get([&] {
      wait();
      return 1;
    });
  });
  EXPECT_TRUE(holds_in_child([] { return value.get([] { return 2; }) == 2; }));
}

TEST(Fork, AValueIsMadeOnceAndAgainAfterAFailure) {
  static constinit Lazy<int> value;
  EXPECT_THROW(value.get([]() -> int { throw std::runtime_error("not yet"); }), std::runtime_error);
  EXPECT_EQ(value.get([] { return 3; }), 3);
  EXPECT_EQ(value.get([] { return 4; }), 3);
  EXPECT_TRUE(holds_in_child([] { return value.get([] { return 5; }) == 3; }));
}

TEST(Fork, ASharedMutexIsWaitedFor) {
  ForkSharedMutex mutex;
  std::atomic<bool> done = false;
  std::jthread writer([&] {
    for (uint64_t i = 0; !done; ++i) {
      const std::unique_lock lock(mutex);
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(holds_in_child([&] {
      const std::unique_lock lock(mutex);
      return true;
    }));
  }
  done = true;
}

/// Threads plan and look up all the time; every child plans and multiplies.
TEST(Fork, ChildrenPlanAndMultiply) {
  std::atomic<bool> done = false;
  std::vector<std::jthread> threads;
  const auto problem = [](int64_t m) {
    GemmProblem p{.m = m, .n = 8, .k = 8, .device = kCpu};
    p.a = p.b = p.c = p.d = row_major(8, 0, DType::f32);
    return p;
  };
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; !done; ++i) plan(problem(1 + (i * 2 + t) % 5000));
    });
  }
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(holds_in_child([&] {
      std::vector<float> a(8 * 4, 1.0f), b(8 * 8, 2.0f), d(8 * 4);
      const auto made = plan(problem(4));
      made->run({.a = a.data(), .b = b.data(), .d = d.data()}, nullptr);
      plan(problem(6000 + i));
      return d == std::vector<float>(8 * 4, 16.0f);
    })) << "fork "
        << i;
  }
  done = true;
}

}  // namespace
}  // namespace cleave
