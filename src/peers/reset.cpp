// A broken group of ranks that all live is made whole again. Meetings cannot do it, as they are what is broken: ranks
// tell each other by a word of each, which the host writes.
//
//   come      this rank has ended all that it had enqueued; nothing of its goes to others' memory any more
//   cleared   all have come, and this rank's memory is as at first
//
// All have cleared: any may begin. Who gives up takes its word back. Each reset has a number, one more than the largest
// that a rank has seen, so that a word that was left by one that succeeded is not taken for an answer.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "base/refuse.h"
#include "peers/mapped_group.h"

namespace cleave {
namespace {

enum class Step : uint32_t { absent, come, cleared };

struct ResetWord {
  Step step = Step::absent;
  uint32_t number = 0;

  uint64_t bits() const { return uint64_t(number) << 32 | uint32_t(step); }
  static ResetWord of(uint64_t bits) { return {Step(uint32_t(bits)), uint32_t(bits >> 32)}; }
  friend bool operator==(const ResetWord&, const ResetWord&) = default;
};

constexpr auto kPause = std::chrono::microseconds(100);

}  // namespace

void MappedGroup::reset() const {
  const std::lock_guard lock(resetting_);
  const uint32_t asked = aborts();
  bool is_clear = false;
  quiesce();
  const auto say = [&](ResetWord word) {
    for (int to = 0; to < size(); ++to) say_reset(word.bits(), to);
  };
  GroupRecord& found = record();
  const auto give_up = [&](int peer, double seconds) {
    say({});
    if (is_clear && found.outcome == Outcome::arrived) {  // others may have begun
      found.peer = uint32_t(peer);
      found.expected = {.epoch = generation_, .signature = signature_of("reset()")};
      *static_cast<volatile Outcome*>(&found.outcome) = Outcome::late;
    }
    if (aborts() != asked) refuse(ErrorCode::peer, "reset() was aborted while rank {} waited for rank {}", rank_, peer);
    refuse(ErrorCode::peer,
           "rank {} waited {} s for rank {} in reset(), which did not come: it has died, is late, or makes another "
           "call. The group stays broken",
           rank_, seconds, peer);
  };
  /// Until is_there(word) of each rank's. One that never was is named before one that has given up since.
  const auto wait = [&](double seconds, const auto& is_there) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    std::array<bool, kMostRanks> were = {};
    for (;; std::this_thread::sleep_for(kPause)) {
      const auto words = read_resets();
      int left = -1, missing = -1;
      for (int r = size() - 1; r >= 0; --r) {
        const bool is = is_there(ResetWord::of(words[size_t(r)]));
        were[size_t(r)] |= is;
        if (!is) left = r;
        if (!were[size_t(r)]) missing = r;
      }
      if (left < 0) return;
      if (aborts() != asked || std::chrono::steady_clock::now() >= deadline)
        give_up(missing < 0 ? left : missing, seconds);
    }
  };

  const double timeout = double(timeout_) * 1e-9;
  say({Step::come, generation_});
  std::optional<uint32_t> decided;  // by a rank that has seen all come already
  uint32_t largest = generation_;
  wait(2 * timeout, [&](ResetWord word) {  // a rank may wait as long in its last call before it comes
    const bool is_cleared = word.step == Step::cleared && word.number > generation_;
    if (is_cleared) decided = word.number;
    if (word.step == Step::come) largest = std::max(largest, word.number);
    return is_cleared || word.step == Step::come;
  });
  generation_ = decided.value_or(largest + 1);
  clear();
  is_clear = true;
  say({Step::cleared, generation_});
  wait(timeout, [&](ResetWord word) { return word == ResetWord{Step::cleared, generation_}; });
  mend();
  found.peer = 0, found.expected = {}, found.seen = {};
  *static_cast<volatile Outcome*>(&found.outcome) = Outcome::arrived;
  std::atomic_ref(found.abort).fetch_sub(asked);
}

}  // namespace cleave
