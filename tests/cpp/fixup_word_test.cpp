// The word through which the slices of a tile agree: whatever the order of their steps, and however
// few of them run at a time, every chunk has one reducer, who comes after all arrivals, and the word
// ends as it began.

#include "cleave/split_k/fixup_word.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cleave {
namespace {

/// One slice, a step at a time, as kernels/cleave/split_k/parallel.h goes through it.
class Slice {
 public:
  Slice(uint32_t slice, bool stays, uint32_t patience) : slice_(slice), stays_(stays), patience_(patience) {}

  bool done() const { return stage_ == Stage::done; }

  /// One atomic of the kernel.
  void step(FixupWord& word, uint32_t slices, uint32_t chunks, std::vector<int>& reducers, uint32_t& arrived) {
    switch (stage_) {
      case Stage::arrive: {
        const FixupWord found = word;
        word.bits += FixupWord::arrival(slice_, stays_);
        ++arrived;
        if (stays_) {
          stage_ = Stage::linger;
        } else if (found.leaves_all(slices)) {
          reduce(FixupWord::all(chunks), slices, chunks, reducers, arrived);
          stage_ = Stage::clear;
        } else {
          stage_ = Stage::done;
        }
        break;
      }
      case Stage::linger:
        seen_ = word;
        if (seen_.complete(slices)) {
          stage_ = Stage::leave;
        } else if (patience_-- == 0) {
          stage_ = Stage::withdraw;
        }
        break;
      case Stage::withdraw: {
        const FixupWord found = word;
        if (found.bits == seen_.bits) {
          word = seen_.without(slice_);
          stage_ = Stage::done;
        } else {
          seen_ = found;
          if (seen_.complete(slices)) stage_ = Stage::leave;
        }
        break;
      }
      case Stage::leave: {
        reduce(seen_.chunks_of(slice_, chunks), slices, chunks, reducers, arrived);
        const FixupWord found = word;
        word.bits += FixupWord::kOne;
        stage_ = found.clears(slices) ? Stage::clear : Stage::done;
        break;
      }
      case Stage::clear:
        word.bits = 0;
        stage_ = Stage::done;
        break;
      case Stage::done:
        break;
    }
  }

 private:
  static void reduce(uint32_t mine, uint32_t slices, uint32_t chunks, std::vector<int>& reducers, uint32_t arrived) {
    ASSERT_EQ(arrived, slices) << "a partial is missing";
    for (uint32_t chunk = 0; chunk < 32; ++chunk) {
      if ((mine >> chunk & 1) == 0) continue;
      ASSERT_LT(chunk, chunks);
      ++reducers[chunk];
    }
  }

  enum class Stage { arrive, linger, withdraw, leave, clear, done };
  Stage stage_ = Stage::arrive;
  uint32_t slice_;
  bool stays_;
  uint32_t patience_;
  FixupWord seen_;
};

TEST(FixupWord, EveryChunkHasOneReducerWhateverTheOrder) {
  std::mt19937 random(1);
  const auto number = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const uint32_t slices = number(0, 3) == 0 ? number(2, 70) : number(2, 6);
    const uint32_t chunks = FixupWord::chunks(slices, number(1, 40));
    const uint32_t resident = number(0, 1) == 0 ? slices : number(1, slices);
    std::vector<Slice> waiting, running;
    for (uint32_t i = 0; i < slices; ++i)
      waiting.emplace_back(i, i < chunks && number(0, 3) > 0, number(0, 3) * number(0, 20));
    std::shuffle(waiting.begin(), waiting.end(), random);
    FixupWord word;
    std::vector<int> reducers(chunks);
    uint32_t arrived = 0;
    // Nobody waits for ever, so this ends: each step of a slice that lingers takes from its patience.
    while (!waiting.empty() || !running.empty()) {
      while (running.size() < resident && !waiting.empty()) {
        running.push_back(waiting.back());
        waiting.pop_back();
      }
      const size_t one = number(0, uint32_t(running.size()) - 1);
      running[one].step(word, slices, chunks, reducers, arrived);
      if (HasFatalFailure()) return;
      if (running[one].done()) running.erase(running.begin() + one);
    }
    for (const int count : reducers) ASSERT_EQ(count, 1) << slices << " slices, " << chunks << " chunks";
    ASSERT_EQ(word.bits, 0u);
  }
}

}  // namespace
}  // namespace cleave
