// devices/cuda_streams.cpp: streams and events of an NVIDIA GPU.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "devices/cuda.hpp"
#include "devices/cuda_current.hpp"

namespace allocbench {

Stream CudaDevice::number(cuda::Stream stream) {
  std::scoped_lock const guard(streams_mutex_);
  auto const [entry, added] = numbers_.emplace(stream, static_cast<Stream>(streams_.size()));
  if (added) streams_.push_back(stream);
  return entry->second;
}

cuda::Stream CudaDevice::stream(Stream number) {
  std::scoped_lock const guard(streams_mutex_);
  while (streams_.size() <= number) {
    cuda::Stream created = nullptr;
    if (!run_aside(driver_.stream_create, &created, cuda::kNonBlocking)) return nullptr;
    made_here_.push_back(created);
    numbers_.emplace(created, static_cast<Stream>(streams_.size()));
    streams_.push_back(created);
  }
  return streams_[number];
}

cuda::Event CudaDevice::record(cuda::Stream stream) {
  cuda::Event event = nullptr;
  if (!run_aside(driver_.event_create, &event, cuda::kWithoutTiming)) return nullptr;
  if (run_aside(driver_.event_record, event, stream)) return event;
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

void CudaDevice::fill(Address address, Size size, unsigned char value, cuda::Stream stream) {
  run_aside(driver_.fill, cuda::Pointer{address}, value, std::size_t{size}, stream);
}

void CudaDevice::synchronize() { run_aside(driver_.synchronize); }

}  // namespace allocbench
