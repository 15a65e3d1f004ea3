// tests/stand_in/torch_calls/calls.cpp: calls to a pluggable allocator with PyTorch's own types.
// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

#include <cstdio>
#include <functional>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default")))

using Pool = std::pair<unsigned long long, unsigned long long>;

// 1 when an OutOfMemoryError comes, 2 for another exception, 0 for none. `said` gets the text.
EXPORT int what_is_thrown(void* (*alloc)(std::ptrdiff_t, int, void*), std::ptrdiff_t size,
                          char* said, std::size_t room) {
  try {
    alloc(size, 0, nullptr);
    return 0;
  } catch (c10::OutOfMemoryError const& error) {
    std::snprintf(said, room, "%s", error.what_without_backtrace());
    return 1;
  } catch (std::exception const& error) {
    std::snprintf(said, room, "%s", error.what());
    return 2;
  }
}

EXPORT void begin(void (*begin_pool)(int, Pool, std::function<bool(void*)>), void* captured) {
  begin_pool(0, {3, 4}, [captured](void* stream) { return stream == captured; });
}
EXPORT void end(void (*end_pool)(int, Pool)) { end_pool(0, {3, 4}); }
