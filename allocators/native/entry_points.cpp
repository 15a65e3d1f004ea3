// entry_points.cpp: the allocation functions that PyTorch and CuPy call.
// SPDX-License-Identifier: Apache-2.0
//
// They are C functions, because these libraries take function addresses. A failed request of
// PyTorch throws an exception, which PyTorch passes on to the program. Other callers do not expect
// exceptions: they get a null address, and `last_failure` gives the reason.
#include <atomic>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <type_traits>

#include "core/text.hpp"
#include "program.hpp"
#include "torch_errors.hpp"

namespace allocbench {
namespace {

std::atomic<Program*> torch_program = nullptr;
thread_local std::string failure_of_this_thread;

// Returns 0, with the reason in `failure`, if there is no memory. Throws if the GPU cannot be used.
Address request(Program* program, Size size, int device, void* stream, std::string& failure) {
  if (program == nullptr) throw std::logic_error("no allocator has been selected");
  return program->on(device).allocate(size, stream, failure);
}

// Makes a call of PyTorch, which handles its exceptions. For any other caller, the text of an
// exception is kept for `last_failure` and printed, and the result is empty.
template <class Call>
std::invoke_result_t<Call> for_torch(Call call) {
  try {
    return call();
  } catch (std::exception const& error) {
    if (torch_is_loaded()) throw;
    failure_of_this_thread = error.what();
    std::fprintf(stderr, "allocbench: %s\n", error.what());
    return std::invoke_result_t<Call>();
  }
}

// Reports an invalid free on standard error instead of throwing, because destructors may call it.
void free_block(Program* program, void* block, int device) noexcept {
  ProgramMemory* const memory = program == nullptr ? nullptr : program->find(device);
  auto const address = reinterpret_cast<Address>(block);
  if (memory == nullptr || !memory->deallocate(address))
    std::fprintf(stderr, "allocbench: free of %s on cuda:%d, which is not an allocated block\n",
                 hex(address).c_str(), device);
}

template <class Call>
void for_each_memory(Call call) {
  if (Program* const program = torch_program) for_torch([&] { program->for_each(call); });
}

ProgramMemory* torch_memory(int device) {
  Program* const program = torch_program;
  return program == nullptr ? nullptr : program->find(device);
}

}  // namespace

void serve_torch(Program* program) { torch_program = program; }

std::string last_failure() { return failure_of_this_thread; }

}  // namespace allocbench

#define ENTRY extern "C" __attribute__((visibility("default")))

using namespace allocbench;

// -- PyTorch

ENTRY void* allocbench_torch_alloc(std::ptrdiff_t size, int device, void* stream) {
  if (size <= 0) return nullptr;
  return for_torch([&] {
    std::string failure;
    Address const address =
        request(torch_program, static_cast<Size>(size), device, stream, failure);
    if (address == 0) throw_to_torch(failure);
    return reinterpret_cast<void*>(address);
  });
}

ENTRY void allocbench_torch_free(void* block, std::ptrdiff_t, int device, void*) {
  if (block != nullptr) free_block(torch_program, block, device);
}

ENTRY void allocbench_torch_reset() {
  for_each_memory([](ProgramMemory& memory) { memory.trim(); });
}

ENTRY void allocbench_torch_memory_fraction(double fraction, int device) {
  if (torch_program == nullptr) return;
  for_torch([&] {
    if (!(fraction >= 0 && fraction <= 1))
      throw std::invalid_argument("a memory fraction of " + std::to_string(fraction) +
                                  " must be from 0 to 1");
    ProgramMemory& memory = torch_program.load()->on(device);
    memory.limit(static_cast<Size>(fraction * static_cast<double>(memory.device().total())));
  });
}

ENTRY void allocbench_torch_record_stream(void* block, void* stream) {
  for_each_memory(
      [&](ProgramMemory& memory) { memory.use_on(reinterpret_cast<Address>(block), stream); });
}

ENTRY void* allocbench_torch_base(void* block, std::size_t* size) {
  std::pair<Address, Size> segment;
  for_each_memory([&](ProgramMemory& memory) {
    if (segment.first == 0) segment = memory.segment_of(reinterpret_cast<Address>(block));
  });
  if (size != nullptr) *size = segment.second;
  return reinterpret_cast<void*>(segment.first);
}

ENTRY void allocbench_torch_begin_pool(int device, ProgramMemory::GraphPool pool,
                                       ProgramMemory::Captured captured) {
  if (torch_program == nullptr) return;
  for_torch([&] { torch_program.load()->on(device).begin_capture(pool, std::move(captured)); });
}

ENTRY void allocbench_torch_end_pool(int device, ProgramMemory::GraphPool pool) {
  if (ProgramMemory* const memory = torch_memory(device)) memory->end_capture(pool);
}

ENTRY void allocbench_torch_release_pool(int device, ProgramMemory::GraphPool pool) {
  if (ProgramMemory* const memory = torch_memory(device)) memory->release(pool);
}

// -- CuPy: `program` is the `param` argument of CFunctionAllocator

namespace {
thread_local void* cupy_stream = nullptr;
}

ENTRY void allocbench_cupy_use_stream(void* stream) { cupy_stream = stream; }

ENTRY void* allocbench_cupy_malloc(void* program, std::size_t size, int device) {
  try {
    return reinterpret_cast<void*>(
        request(static_cast<Program*>(program), size, device, cupy_stream, failure_of_this_thread));
  } catch (std::exception const& error) {
    failure_of_this_thread = error.what();
    return nullptr;
  }
}

ENTRY void allocbench_cupy_free(void* program, void* block, int device) {
  if (block != nullptr) free_block(static_cast<Program*>(program), block, device);
}
