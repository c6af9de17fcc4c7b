// In which order two streams do what they are given, on a driver that is not there.
#include "peers/beside.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "cleave/problem.h"
#include "fake_driver.h"
#include "runtime/copy.h"

namespace cleave {
namespace {

void* const kComputing = reinterpret_cast<void*>(64);

/// The number of something that it is given.
int give(void* stream) {
  enqueue_copy(0, &stream, &stream, 1, stream);
  return fake_driver_work_count() - 1;
}

TEST(Beside, BeginsBehindWhatItFollows) {
  Beside beside(0, kComputing);
  const int before = give(kComputing);
  EXPECT_FALSE(fake_driver_is_behind(beside.stream(), before));
  beside.follow();
  const int after = give(kComputing);
  EXPECT_TRUE(fake_driver_is_behind(beside.stream(), before));
  EXPECT_FALSE(fake_driver_is_behind(beside.stream(), after));
}

TEST(Beside, IsAwaitedAsFarAsAMark) {
  Beside beside(0, kComputing);
  beside.follow();
  std::array<int, Beside::kMarks> given;
  for (size_t i = 0; i < given.size(); ++i) {
    given[i] = give(beside.stream());
    beside.mark(i);
  }
  beside.follow();  // whose event is another one
  beside.await(0);
  EXPECT_TRUE(fake_driver_is_behind(kComputing, given[0]));
  EXPECT_FALSE(fake_driver_is_behind(kComputing, given[1]));
  beside.await(1);
  EXPECT_TRUE(fake_driver_is_behind(kComputing, given[1]));
}

TEST(Beside, IsDoneBeforeWhatComesBehindTheCall) {
  void* stream = nullptr;
  int last = 0;
  {
    Beside beside(0, kComputing);
    stream = beside.stream();
    beside.follow();
    last = give(stream);
    EXPECT_FALSE(fake_driver_is_behind(kComputing, last));
  }
  EXPECT_TRUE(fake_driver_is_behind(kComputing, last));
  last = give(stream);
  {
    const Beside unused(0, kComputing);
  }  // it may not be in a capture that the call's stream is in
  EXPECT_FALSE(fake_driver_is_behind(kComputing, last));
}

void* stream_beside(uint64_t number) {
  fake_driver_set_stream_id(number);
  void* const stream = Beside(0, kComputing).stream();
  fake_driver_set_stream_id(1);
  return stream;
}

TEST(Beside, CallsAtTheSameTimeHaveStreamsOfTheirOwn) {
  std::array<std::optional<Beside>, 2> calls;
  for (auto& call : calls) call.emplace(0, kComputing);
  void* const first = calls[0]->stream();
  EXPECT_NE(first, calls[1]->stream());
  EXPECT_NE(first, kComputing);
  calls[0].reset();
  calls[0].emplace(0, kComputing);
  EXPECT_EQ(first, calls[0]->stream());
}

TEST(Beside, StreamsThatComputeHaveStreamsOfTheirOwn) {
  void* const first = stream_beside(7);
  EXPECT_NE(stream_beside(8), first) << "whose meetings would wait for the other's";
  EXPECT_EQ(stream_beside(7), first);
}

/// The stream that a call on `computing` is lent in that capture, of which it becomes a part.
void* stream_in_capture(void* computing, uint64_t capture) {
  fake_driver_set_capture_of(computing, capture);
  void* const stream = Beside(0, computing).stream();
  fake_driver_set_capture_of(computing, 0);
  fake_driver_set_capture_of(stream, capture);
  return stream;
}

TEST(Beside, AStreamThatIsCapturedIsNotLentToOthers) {
  void* const first = stream_beside(9);
  fake_driver_set_capture_of(first, 5);
  EXPECT_NE(stream_beside(9), first);
  fake_driver_set_capture_of(first, 0);
}

TEST(Beside, CapturesTakeTheStreamsOfThoseThatHaveEnded) {
  void* const eager = stream_beside(10);
  void* const first = stream_in_capture(kComputing, 20);
  EXPECT_NE(first, eager);
  EXPECT_EQ(stream_in_capture(kComputing, 20), first);
  void* const other = reinterpret_cast<void*>(128);
  void* const beside_other = stream_in_capture(other, 20);
  EXPECT_NE(beside_other, first) << "whose meetings would wait for the other's";
  void* const meanwhile = stream_in_capture(kComputing, 21);
  EXPECT_TRUE(meanwhile != first && meanwhile != beside_other);

  for (void* const stream : {first, beside_other, meanwhile}) fake_driver_set_capture_of(stream, 0);
  void* const next = stream_in_capture(kComputing, 22);
  EXPECT_TRUE(next == first || next == beside_other || next == meanwhile);
  fake_driver_set_capture_of(next, 0);
  EXPECT_EQ(stream_beside(10), eager);
}

TEST(Beside, CopiesAtOnceOnTheCpu) {
  Beside beside(kCpu, nullptr);
  const int from = 7;
  int to = 0;
  beside.follow();
  beside.copy(&to, &from, sizeof(to));
  EXPECT_EQ(to, 7);
  beside.mark(0);
  beside.await(0);
}

}  // namespace
}  // namespace cleave
