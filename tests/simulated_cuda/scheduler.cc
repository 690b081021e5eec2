#include "tests/simulated_cuda/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "tests/simulated_cuda/device_thread.h"

namespace steptape::tests::simulated {

Scheduler::Scheduler() { make_stream(true, 0); }

std::shared_ptr<Stream> Scheduler::make_stream(bool is_blocking, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->id = next_id_++;
  stream->is_blocking = is_blocking;
  stream->priority = priority;
  return streams_.emplace_back(std::move(stream));
}

void Scheduler::remove_stream(Stream* stream) {
  const auto found = find(stream);
  run_until({found, found->enqueued});
  streams_.erase(std::find(streams_.begin(), streams_.end(), found));
}

std::shared_ptr<Stream> Scheduler::find(const void* address) const {
  for (const auto& stream : streams_)
    if (stream.get() == address) return stream;
  return nullptr;
}

void Scheduler::enqueue(const std::shared_ptr<Stream>& stream, Work work) {
  const auto& legacy = streams_.front();
  if (stream == legacy) {
    for (const auto& other : streams_)
      if (other != legacy && other->is_blocking) wait(*stream, {other, other->enqueued});
  } else if (stream->is_blocking) {
    wait(*stream, {legacy, legacy->enqueued});
  }
  stream->queue.emplace_back(std::move(work));
  ++stream->enqueued;
}

void Scheduler::wait(Stream& stream, Point point) {
  if (is_reached(point) || point.stream.get() == &stream) return;
  stream.queue.emplace_back(std::move(point));
  ++stream.enqueued;
}

bool Scheduler::can_run(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const auto* const point = std::get_if<Point>(&stream.queue.front());
  return !point || is_reached(*point);
}

void Scheduler::run_head(Stream& stream) {
  auto head = std::move(stream.queue.front());
  stream.queue.pop_front();
  ++stream.completed;
  auto* const work = std::get_if<Work>(&head);
  if (!work || !work->body || has_failed_) return;
  try {
    work->body(work->parameters ? std::span<const std::byte>(*work->parameters)
                                : std::span<const std::byte>());
  } catch (const std::exception& error) {
    has_failed_ = true;
    const std::string_view text = error.what();
    const std::string_view first_line = text.substr(0, text.find('\n'));
    std::fprintf(stderr, "simulated CUDA: `%s` failed on the device: %.*s\n",
                 work->function ? work->function->name.c_str() : "work",
                 static_cast<int>(first_line.size()), first_line.data());
  }
}

void Scheduler::run_needed(const Point& point) {
  while (!is_reached(point)) {
    Stream& stream = *point.stream;
    if (const auto* const needed = std::get_if<Point>(&stream.queue.front()))
      run_needed(Point(*needed));
    run_head(stream);
  }
}

Stream* Scheduler::draw_runnable(const Stream* except) {
  std::vector<Stream*> runnable;
  for (const auto& stream : streams_)
    if (stream.get() != except && can_run(*stream)) runnable.push_back(stream.get());
  if (runnable.empty()) return nullptr;
  if (order_ == Order::kShuffled) return runnable[random_() % runnable.size()];
  return order_ == Order::kNeededOnly ? runnable.back() : runnable.front();
}

void Scheduler::run_until(const Point& point) {
  if (is_reached(point)) return;
  run_on_device_thread([&] {
    if (order_ == Order::kOthersFirst)
      while (Stream* const stream = draw_runnable(point.stream.get())) run_head(*stream);
    if (order_ == Order::kShuffled)
      while (!is_reached(point)) run_head(*draw_runnable(nullptr));
    run_needed(point);
  });
}

void Scheduler::run_all() {
  if (pending() == 0) return;
  run_on_device_thread([&] {
    while (Stream* const stream = draw_runnable(nullptr)) run_head(*stream);
  });
}

void Scheduler::run_one_towards(const Point& point) {
  if (is_reached(point)) return;
  run_on_device_thread([&] {
    Stream* stream = point.stream.get();
    while (!can_run(*stream)) stream = std::get<Point>(stream->queue.front()).stream.get();
    run_head(*stream);
  });
}

void Scheduler::set_order(Order order, std::uint64_t seed) {
  order_ = order;
  random_.seed(seed);
}

std::uint64_t Scheduler::draw() { return order_ == Order::kShuffled ? random_() | 1 : 0; }

std::size_t Scheduler::pending() const {
  std::size_t count = 0;
  for (const auto& stream : streams_) count += stream->queue.size();
  return count;
}

}  // namespace steptape::tests::simulated
