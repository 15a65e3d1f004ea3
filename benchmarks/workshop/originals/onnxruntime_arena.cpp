// ONNX Runtime's BFCArena, from the package onnxruntime, as a pluggable allocator.
// SPDX-License-Identifier: Apache-2.0
//
// The package offers the arena of the processor only, above posix_memalign or an aligned `new`.
// This library is also preloaded (LD_PRELOAD): while the arena works, what it requests with an
// alignment is a segment of the simulated GPU. LIBRARY is the path of libonnxruntime.so.
#include <dlfcn.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime.hpp"

extern "C" void* __libc_memalign(std::size_t alignment, std::size_t size);
extern "C" void __libc_free(void* block);

// Of the preloaded library, which both see.
ORIGINAL bool* arena_works() {
  static thread_local bool works = false;
  return &works;
}

namespace {

std::set<void*>& segments() {
  static auto* const all = new std::set<void*>;
  return *all;
}

void* aligned(std::size_t alignment, std::size_t size) {
  bool& works = *arena_works();
  if (!works) return __libc_memalign(alignment, size);
  works = false;
  void* const made = original::segment(size);
  if (made != nullptr) segments().insert(made);
  works = true;
  return made;
}

}  // namespace

ORIGINAL int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  *block = aligned(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

[[gnu::visibility("default")]] void* operator new(std::size_t size, std::align_val_t alignment) {
  if (void* const block = aligned(static_cast<std::size_t>(alignment), size)) return block;
  throw std::bad_alloc();
}

ORIGINAL void free(void* block) {
  bool& works = *arena_works();
  if (!works) return __libc_free(block);
  works = false;
  if (segments().erase(block) != 0)
    cudaFree(block);
  else
    __libc_free(block);
  works = true;
}

namespace {

class ArenaWorks {
 public:
  ArenaWorks() { *arena_works() = true; }
  ArenaWorks(ArenaWorks const&) = delete;
  ArenaWorks& operator=(ArenaWorks const&) = delete;
  ~ArenaWorks() { *arena_works() = false; }
};

// Functions by their position in OrtApi (onnxruntime_c_api.h), which never changes.
enum Function {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSessionFromArray = 8,
  kCreateSessionOptions = 10,
  kSetIntraOpNumThreads = 24,
  kCreateCpuMemoryInfo = 69,
  kReleaseEnv = 92,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseSessionOptions = 100,
  kAddSessionConfigEntry = 130,
  kCreateAllocator = 131,
  kReleaseAllocator = 132,
  kCreateAndRegisterAllocator = 144,
  kReleaseArenaCfg = 157,
  kCreateArenaCfgV2 = 164,
  kUnregisterAllocator = 177,
};

struct OrtAllocator {
  std::uint32_t version;
  void* (*alloc)(OrtAllocator*, std::size_t);
  void (*free)(OrtAllocator*, void*);
};

class Api {
 public:
  Api() {
    void* const library = dlopen(LIBRARY, RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    struct Base {
      void* const* (*get)(std::uint32_t version);
    };
    auto const base = reinterpret_cast<Base const* (*)()>(dlsym(library, "OrtGetApiBase"));
    functions_ = base()->get(17);
  }

  template <class... Arguments>
  void call(Function function, Arguments... arguments) const {
    void* const error =
        reinterpret_cast<void* (*)(Arguments...)>(functions_[function])(arguments...);
    if (error == nullptr) return;
    auto const text = reinterpret_cast<char const* (*)(void*)>(functions_[kGetErrorMessage]);
    throw std::runtime_error(text(error));
  }
  void release(Function function, void* object) const {
    reinterpret_cast<void (*)(void*)>(functions_[function])(object);
  }

 private:
  void* const* functions_;
};

// A field of a Protocol Buffers message: a message or text, or a number.
std::string field(int number, std::string const& content) {
  return std::string(1, char(number << 3 | 2)) + char(content.size()) + content;
}
std::string field(int number, int value) { return std::string(1, char(number << 3)) + char(value); }

// An ONNX model whose only node is Identity: a session gives access to a registered arena.
std::string model() {
  std::string const shape = field(2, field(1, field(1, 1)));
  std::string const tensor = field(2, field(1, field(1, 1) + shape));
  std::string const graph = field(1, field(1, "x") + field(2, "y") + field(4, "Identity")) +
                            field(2, "g") + field(11, field(1, "x") + tensor) +
                            field(12, field(1, "y") + tensor);
  return field(1, 7) + field(7, graph) + field(8, field(2, 13));
}

class Arena {
 public:
  Arena() {
    api_.call(kCreateEnv, 4, "original", &environment_);
    api_.call(kCreateCpuMemoryInfo, 1, 0, &memory_);
    void* configuration = nullptr;
    char const* const keys[] = {"max_mem"};
    std::size_t const values[] = {0};  // no limit
    api_.call(kCreateArenaCfgV2, &keys[0], &values[0], std::size_t{1}, &configuration);
    api_.call(kCreateAndRegisterAllocator, environment_, memory_, configuration);
    api_.release(kReleaseArenaCfg, configuration);
    api_.call(kCreateSessionOptions, &options_);
    api_.call(kSetIntraOpNumThreads, options_, 1);
    api_.call(kAddSessionConfigEntry, options_, "session.use_env_allocators", "1");
    std::string const identity = model();
    api_.call(kCreateSessionFromArray, environment_, static_cast<void const*>(identity.data()),
              identity.size(), options_, &session_);
    api_.call(kCreateAllocator, session_, memory_, &allocator_);
  }
  Arena(Arena const&) = delete;
  Arena& operator=(Arena const&) = delete;
  ~Arena() {
    ArenaWorks const scope;
    api_.release(kReleaseAllocator, allocator_);
    api_.release(kReleaseSession, session_);
    api_.release(kReleaseSessionOptions, options_);
    api_.call(kUnregisterAllocator, environment_, memory_);
    api_.release(kReleaseMemoryInfo, memory_);
    api_.release(kReleaseEnv, environment_);
  }

  void* allocate(std::size_t size) {
    ArenaWorks const scope;
    try {
      return allocator_->alloc(allocator_, size);
    } catch (...) {  // a full GPU, as an exception of ONNX Runtime
      return nullptr;
    }
  }
  void free(void* block) {
    ArenaWorks const scope;
    allocator_->free(allocator_, block);
  }

 private:
  Api api_;
  void *environment_ = nullptr, *memory_ = nullptr, *options_ = nullptr, *session_ = nullptr;
  OrtAllocator* allocator_ = nullptr;
};

std::vector<std::unique_ptr<Arena>>& dropped() {
  static auto* const all = new std::vector<std::unique_ptr<Arena>>;
  return *all;
}

}  // namespace

// Of the preloaded library: threads of ONNX Runtime cannot end while a library is unloaded, so an
// arena ends when the next one begins.
ORIGINAL void* begin_arena() {
  dropped().clear();
  return new Arena;
}
ORIGINAL void drop_arena(void* arena) { dropped().emplace_back(static_cast<Arena*>(arena)); }

namespace {

Arena& arena() {
  static std::unique_ptr<void, void (*)(void*)> const made(begin_arena(), drop_arena);
  return *static_cast<Arena*>(made.get());
}

}  // namespace

ORIGINAL void* my_malloc(ssize_t size, int, void*) {
  return arena().allocate(static_cast<std::size_t>(size));
}

ORIGINAL void my_free(void* block, ssize_t, int, void*) { arena().free(block); }
