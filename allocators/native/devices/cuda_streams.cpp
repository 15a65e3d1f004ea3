// devices/cuda_streams.cpp: streams and events of an NVIDIA GPU.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "devices/cuda.hpp"
#include "devices/cuda_current.hpp"

namespace allocbench {
namespace {

// The number of the calling thread. Unlike a thread id, it is never reused.
std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> threads = 0;
  static thread_local std::uint64_t const number = ++threads;
  return number;
}

}  // namespace

CudaDevice::StreamName CudaDevice::name_of(cuda::Stream stream) const {
  return {context_, stream == cuda::kLegacyStream ? nullptr : stream,
          stream == cuda::kPerThreadStream ? this_thread() : 0};
}

std::vector<CudaDevice::StreamName> CudaDevice::names_of(cuda::Stream stream) {
  std::vector<StreamName> names = {name_of(stream)};
  if (driver_.devices == 1 || inherited()) return names;
  bool const is_default = names[0].handle == nullptr || names[0].thread != 0;
  if (!is_default) {
    cuda::Context context = nullptr;
    if (run_aside(driver_.stream_context, stream, &context)) names[0].context = context;
    return names;
  }
  for (int ordinal = 0; ordinal < driver_.devices; ++ordinal) {
    cuda::DeviceId id = 0;
    unsigned flags = 0;
    int active = 0;
    if (!run_aside(driver_.device_get, &id, ordinal) || id == id_ ||
        !run_aside(driver_.context_state, id, &flags, &active) || active == 0)
      continue;
    StreamName& name = names.emplace_back(names[0]);
    if (!run_aside(driver_.context_retain, &name.context, id)) {
      names.pop_back();
      continue;
    }
    run_aside(driver_.context_release, id);  // stays active, because the program retains it
  }
  return names;
}

Stream CudaDevice::number(cuda::Stream stream) {
  StreamName const name = name_of(stream);
  std::scoped_lock const guard(streams_mutex_);
  auto const [entry, added] = numbers_.emplace(name, static_cast<Stream>(streams_.size()));
  if (added) streams_.push_back(name);
  return entry->second;
}

cuda::Stream CudaDevice::stream(Stream number) {
  std::scoped_lock const guard(streams_mutex_);
  while (streams_.size() <= number) {
    cuda::Stream created = nullptr;
    if (!run_aside(driver_.stream_create, &created, cuda::kNonBlocking)) return nullptr;
    own_streams_.push_back(created);
    numbers_.emplace(name_of(created), static_cast<Stream>(streams_.size()));
    streams_.push_back(name_of(created));
  }
  StreamName const& name = streams_[number];
  return name.thread == 0 || name.thread == this_thread() ? name.handle : nullptr;
}

cuda::Event CudaDevice::record(StreamName const& stream) {
  if (inherited()) return nullptr;
  Current const current(*this, stream.context);
  cuda::Event event = nullptr;
  if (!current ||
      !noted(driver_.event_create.name, driver_.event_create(&event, cuda::kWithoutTiming)))
    return nullptr;
  bool const usable_here = stream.thread == 0 || stream.thread == this_thread();
  cuda::Stream const handle = usable_here ? stream.handle : nullptr;
  if (noted(driver_.event_record.name, driver_.event_record(event, handle))) return event;
  destroy(event);
  return nullptr;
}

bool CudaDevice::done(cuda::Event event) {
  if (inherited()) return true;
  cuda::Result const result = driver_.event_query(event);
  if (result == cuda::kNotReady) return false;
  noted(driver_.event_query.name, result);
  return true;
}

void CudaDevice::wait(cuda::Event event) { run_aside(driver_.event_synchronize, event); }

void CudaDevice::destroy(cuda::Event event) { run_aside(driver_.event_destroy, event); }

void CudaDevice::fill(Address address, Size size, unsigned char value, Stream stream) {
  run_aside(driver_.fill, cuda::Pointer{address}, value, std::size_t{size}, this->stream(stream));
}

void CudaDevice::synchronize() { run_aside(driver_.synchronize); }

void CudaDevice::synchronize(cuda::Context context) {
  if (inherited()) return;
  Current const current(*this, context);
  if (current) noted(driver_.synchronize.name, driver_.synchronize());
}

}  // namespace allocbench
