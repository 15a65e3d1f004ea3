// devices/cuda.cpp: the memory of an NVIDIA GPU, through the CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {

// While it exists, a context is current on this thread, by default that of the device, and no call
// invalidates the capture of a graph.
class CudaDevice::Current {
 public:
  explicit Current(CudaDevice& device) : Current(device, device.context_) {}
  Current(CudaDevice& device, cuda::Context context) : device_(device) {
    cuda::Driver const& driver = device.driver_;
    cuda::Context current = nullptr;
    entered_ = device.noted(driver.context_current.name, driver.context_current(&current));
    if (entered_ && current != context) {
      entered_ = device.noted(driver.context_push.name, driver.context_push(context));
      pushed_ = entered_;
    }
    if (entered_) driver.exchange_capture_mode(&mode_);
  }
  Current(Current const&) = delete;
  Current& operator=(Current const&) = delete;
  ~Current() {
    cuda::Context popped = nullptr;
    if (entered_) device_.driver_.exchange_capture_mode(&mode_);
    if (pushed_) device_.driver_.context_pop(&popped);
  }
  explicit operator bool() const { return entered_; }

 private:
  CudaDevice& device_;
  bool entered_ = false;
  bool pushed_ = false;
  int mode_ = cuda::kRelaxed;  // holds the previous mode once it has been exchanged
};

// Makes a call that does not count as a device call of an allocator. True on success.
template <class Function, class... Arguments>
bool CudaDevice::run_aside(Function const& call, Arguments... arguments) {
  if (inherited()) return false;
  Current const current(*this);
  return current && noted(call.name, call(arguments...));
}

namespace {

using cuda::kDeinitialized;
using cuda::kOutOfMemory;
using cuda::kSuccess;

// The open devices of this process. They are closed at exit: after Python has released what it can,
// and before the driver is unloaded, because the driver was loaded before the handler was
// registered.
class OpenDevices {
 public:
  static OpenDevices& get() {
    static OpenDevices* const instance = new OpenDevices;
    return *instance;
  }
  // Calls `visit` for each device that is already open.
  template <class Visit>
  void add(CudaDevice* device, Visit visit) {
    std::scoped_lock const guard(mutex_);
    for (CudaDevice* other : devices_) visit(*other);
    devices_.insert(device);
  }
  void remove(CudaDevice* device) {
    std::scoped_lock const guard(mutex_);
    devices_.erase(device);
  }

 private:
  OpenDevices() {
    std::atexit([] {
      std::scoped_lock const guard(get().mutex_);
      for (CudaDevice* device : get().devices_) device->close();
    });
  }

  std::mutex mutex_;
  std::set<CudaDevice*> devices_;
};

cuda::Driver const& driver_with(int ordinal) {
  cuda::Driver const& driver = cuda::Driver::get();
  if (ordinal < 0 || ordinal >= driver.devices)
    throw SpecError("there is no CUDA device " + std::to_string(ordinal) + ": the driver has " +
                    std::to_string(driver.devices));
  return driver;
}

}  // namespace

// Calls the driver in the current context, adds the duration to `seconds` and returns the result.
template <class Function, class... Arguments>
cuda::Result CudaDevice::run(double& seconds, Function const& call, Arguments... arguments) {
  using Clock = std::chrono::steady_clock;
  auto const begin = Clock::now();
  cuda::Result const result = call(arguments...);
  seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

// True on success. Running out of memory is a refusal; any other error is a failure.
template <class Function, class... Arguments>
bool CudaDevice::run_on(Size size, double& seconds, Function const& call, Arguments... arguments) {
  cuda::Result const result = run(seconds, call, arguments...);
  return result != kOutOfMemory && noted(call.name, result, size);
}

// True on success; otherwise records the failure for `take_failure`.
bool CudaDevice::noted(char const* call, cuda::Result result, Size size) {
  if (result == kSuccess) return true;
  std::string text = "cuda:" + std::to_string(ordinal_) + ": " + driver_.describe(call, result);
  if (size != 0) text += " for " + human_bytes(size);
  fail(std::move(text));
  return false;
}

CudaDevice::CudaDevice(int ordinal, std::optional<Size> limit)
    : driver_(driver_with(ordinal)), ordinal_(ordinal), process_(getpid()) {
  auto const check = [&](auto const& call, auto... arguments) {
    if (noted(call.name, call(arguments...))) return;
    if (context_ != nullptr) driver_.context_release(id_);
    throw DeviceError(take_failure().value_or(call.name));
  };
  std::array<char, 256> name{};
  std::size_t bytes = 0;
  int has_pages = 0, has_driver_pools = 0;
  check(driver_.device_get, &id_, ordinal);
  check(driver_.device_name, name.data(), static_cast<int>(name.size() - 1), id_);
  check(driver_.device_bytes, &bytes, id_);
  check(driver_.device_attribute, &has_pages, static_cast<int>(cuda::kVirtualMemory), id_);
  check(driver_.device_attribute, &has_driver_pools, static_cast<int>(cuda::kMemoryPools), id_);
  check(driver_.context_retain, &context_, id_);
  name_ = name.data();
  has_driver_pools_ = has_driver_pools != 0;
  total_ = bytes;
  most_ = std::min<Size>(bytes, limit.value_or(bytes));
  capacity_ = most_;
  granularity_ = 2 * kMiB;
  if (has_pages != 0) {
    cuda::AllocationProperties const properties{.location = {.id = id_}};
    std::size_t granularity = 0;
    check(driver_.granularity, &granularity, &properties, 0);
    granularity_ = granularity;
  }
  number(nullptr);
  OpenDevices::get().add(this, [this](CudaDevice& other) {
    other.open_to(*this);
    open_to(other);
  });
}

CudaDevice::~CudaDevice() {
  close();
  OpenDevices::get().remove(this);
}

bool CudaDevice::inherited() const { return getpid() != process_; }

bool CudaDevice::usable() {
  if (!inherited()) return true;
  fail("cuda:" + std::to_string(ordinal_) + " was opened by process " + std::to_string(process_) +
       " and cannot be used in the forked child " + std::to_string(getpid()) +
       ": start processes with spawn instead of fork");
  return false;
}

std::string CudaDevice::uuid() {
  std::array<unsigned char, 16> bytes{};
  if (!run_aside(driver_.device_uuid, bytes.data(), id_)) return "";
  constexpr char const* kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t index = 0; index < bytes.size(); ++index) {
    if (index == 4 || index == 6 || index == 8 || index == 10) text += '-';
    text += {kDigits[bytes[index] >> 4], kDigits[bytes[index] & 15]};
  }
  return text;
}

std::optional<Size> CudaDevice::free_bytes() {
  std::size_t free = 0, total = 0;
  if (!run_aside(driver_.memory_info, &free, &total)) return std::nullopt;
  return free;
}

Address CudaDevice::do_allocate(Size size, Size reserved, double& seconds) {
  if (!usable() || size == 0 || size > stated_capacity() - std::min(stated_capacity(), reserved))
    return 0;
  Current const current(*this);
  cuda::Pointer address = 0;
  return current && run_on(size, seconds, driver_.allocate, &address, size) ? address : 0;
}

bool CudaDevice::do_free(Address segment, Size size, double& seconds) {
  if (inherited()) return true;
  Current const current(*this);
  if (!current) return false;
  cuda::Result const result = run(seconds, driver_.free, cuda::Pointer{segment});
  return result == kDeinitialized || noted(driver_.free.name, result, size);
}

Address CudaDevice::do_reserve(Size size, double& seconds) {
  if (!usable()) return 0;
  Current const current(*this);
  cuda::Pointer address = 0;
  bool const success = current && run_on(size, seconds, driver_.reserve, &address,
                                         std::size_t{size}, std::size_t{0}, cuda::Pointer{0}, 0ull);
  return success ? address : 0;
}

bool CudaDevice::do_unreserve(Address reservation, Size size, double& seconds) {
  if (inherited()) return true;
  Current const current(*this);
  if (!current) return false;
  cuda::Result const result =
      run(seconds, driver_.unreserve, cuda::Pointer{reservation}, std::size_t{size});
  return result == kDeinitialized || noted(driver_.unreserve.name, result, size);
}

bool CudaDevice::do_map(Address page, Size size, Size reserved, double& seconds) {
  if (!usable() || size > stated_capacity() - std::min(stated_capacity(), reserved)) return false;
  Current const current(*this);
  if (!current) return false;
  cuda::AllocationProperties const properties{.location = {.id = id_}};
  cuda::Allocation memory = 0;
  if (!run_on(size, seconds, driver_.create, &memory, std::size_t{size}, &properties, 0ull))
    return false;
  bool const mapped = run_on(size, seconds, driver_.map, cuda::Pointer{page}, std::size_t{size},
                             std::size_t{0}, memory, 0ull);
  std::scoped_lock const guard(access_mutex_);
  auto const access = accesses();
  bool const accessible = mapped && run_on(size, seconds, driver_.set_access, cuda::Pointer{page},
                                           std::size_t{size}, access.data(), access.size());
  if (mapped && !accessible)
    run_on(size, seconds, driver_.unmap, cuda::Pointer{page}, std::size_t{size});
  if (accessible) pages_.emplace(page, size);
  // Only the handle is released here; the driver frees the memory once it is unmapped.
  if (!run_on(size, seconds, driver_.release, memory)) unreleased_.push_back(memory);
  return accessible;
}

bool CudaDevice::do_unmap(Address page, Size size, double& seconds) {
  if (inherited()) return true;
  Current const current(*this);
  if (!current) return false;
  cuda::Result const synchronized = driver_.synchronize();
  if (synchronized == kDeinitialized) return true;
  std::scoped_lock const guard(access_mutex_);
  bool const unmapped =
      noted(driver_.synchronize.name, synchronized) &&
      run_on(size, seconds, driver_.unmap, cuda::Pointer{page}, std::size_t{size});
  if (unmapped) pages_.erase(page);
  return unmapped;
}

PoolDevice::PoolHandle CudaDevice::do_open_pool(Size keep, double& seconds) {
  if (!usable()) return 0;
  Current const current(*this);
  cuda::PoolProperties const properties{.location = {.id = id_}};
  cuda::MemoryPool pool = nullptr;
  std::uint64_t threshold = keep;
  if (!current ||
      !noted(driver_.pool_create.name, run(seconds, driver_.pool_create, &pool, &properties)))
    return 0;
  cuda::Result const result =
      run(seconds, driver_.pool_set, pool, static_cast<int>(cuda::kReleaseThreshold),
          static_cast<void*>(&threshold));
  if (!noted(driver_.pool_set.name, result)) {
    driver_.pool_destroy(pool);
    return 0;
  }
  std::scoped_lock const guard(access_mutex_);
  auto const access = accesses();  // skips the first: the owner always has access to its pool
  if (access.size() > 1)
    noted(driver_.pool_set_access.name,
          run(seconds, driver_.pool_set_access, pool, access.data() + 1, access.size() - 1));
  open_pools_.insert(pool);
  return reinterpret_cast<PoolHandle>(pool);
}

Address CudaDevice::do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                                     double& seconds) {
  if (!usable() || size > stated_capacity() - std::min(stated_capacity(), others)) return 0;
  cuda::Stream const handle = this->stream(stream);
  Current const current(*this);
  cuda::Pointer address = 0;
  bool const success =
      current && run_on(size, seconds, driver_.pool_allocate, &address, std::size_t{size},
                        reinterpret_cast<cuda::MemoryPool>(pool), handle);
  if (!success || others + do_held_by(pool, 0) <= stated_capacity()) return success ? address : 0;
  do_free_to(pool, address, size, stream, seconds);  // the pool grew over the limit
  if (!keeps_memory()) do_trim_pool(pool, seconds);
  return 0;
}

bool CudaDevice::do_free_to(PoolHandle, Address block, Size, Stream stream, double& seconds) {
  if (inherited()) return true;
  cuda::Stream const handle = this->stream(stream);
  Current const current(*this);
  if (!current) return false;
  cuda::Result const result = run(seconds, driver_.pool_free, cuda::Pointer{block}, handle);
  return result == kDeinitialized || noted(driver_.pool_free.name, result);
}

void CudaDevice::do_trim_pool(PoolHandle pool, double& seconds) {
  if (inherited()) return;
  Current const current(*this);
  if (!current) return;
  // The driver cannot trim memory whose free is still pending on its stream.
  if (noted(driver_.synchronize.name, driver_.synchronize()))
    run_on(0, seconds, driver_.pool_trim, reinterpret_cast<cuda::MemoryPool>(pool), std::size_t{0});
}

Size CudaDevice::do_held_by(PoolHandle pool, Size before) {
  if (inherited()) return before;
  std::uint64_t bytes = before;
  Current const current(*this);
  if (current)
    noted(driver_.pool_get.name,
          driver_.pool_get(reinterpret_cast<cuda::MemoryPool>(pool),
                           static_cast<int>(cuda::kReserved), static_cast<void*>(&bytes)));
  return bytes;
}

bool CudaDevice::do_close_pool(PoolHandle pool, double& seconds) {
  if (inherited()) return true;
  Current const current(*this);
  if (!current) return false;
  auto const handle = reinterpret_cast<cuda::MemoryPool>(pool);
  std::scoped_lock const guard(access_mutex_);
  cuda::Result const result = run(seconds, driver_.pool_destroy, handle);
  bool const destroyed = result == kDeinitialized || noted(driver_.pool_destroy.name, result);
  if (destroyed) open_pools_.erase(handle);
  return destroyed;
}

// Gives another GPU access to all present and future pages and pools, if the hardware allows it.
void CudaDevice::open_to(CudaDevice& peer) {
  int can = 0;
  if (peer.id_ == id_ || closed() || peer.closed() ||
      !run_aside(driver_.can_access_peer, &can, peer.id_, id_) || can == 0)
    return;
  std::scoped_lock const guard(access_mutex_);
  if (std::ranges::find(peers_, peer.id_) != peers_.end()) return;
  peers_.push_back(peer.id_);
  cuda::AccessDescription const access{.location = {.id = peer.id_}};
  for (auto const& [page, size] : pages_)
    run_aside(driver_.set_access, page, std::size_t{size}, &access, std::size_t{1});
  for (cuda::MemoryPool const pool : open_pools_)
    run_aside(driver_.pool_set_access, pool, &access, std::size_t{1});
}

// Access for the owner, then for each peer.
std::vector<cuda::AccessDescription> CudaDevice::accesses() const {
  std::vector<cuda::AccessDescription> all = {{.location = {.id = id_}}};
  for (cuda::DeviceId const peer : peers_) all.push_back({.location = {.id = peer}});
  return all;
}

void CudaDevice::do_close() {
  if (inherited()) return;
  for (cuda::Allocation const memory : unreleased_) run_aside(driver_.release, memory);
  for (cuda::Stream const stream : own_streams_) run_aside(driver_.stream_destroy, stream);
  cuda::Result const result = driver_.context_release(id_);
  if (result != kDeinitialized) noted(driver_.context_release.name, result);
}

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

namespace allocbench::cuda {
namespace {

constexpr char const* kLibrary = "libcuda.so.1";

void* open_library() {
  if (void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return library;
  char const* const reason = dlerror();
  throw SpecError(std::string("no CUDA driver found: ") + (reason == nullptr ? kLibrary : reason));
}

template <class Function>
void load(void* library, char const* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function == nullptr)
    throw SpecError(std::string("the CUDA driver is too old: ") + kLibrary + " has no " + symbol +
                    " (needs CUDA 11.3 or later)");
}

}  // namespace

Driver const& Driver::get() {
  // Never deleted, because calls may come until the process ends.
  static Driver const* const driver = new Driver;
  return *driver;
}

Driver::Driver() {
  void* const library = open_library();
#define ALLOCBENCH_LOAD(member, symbol, ...) load(library, #symbol, member.function);
  ALLOCBENCH_CUDA_CALLS(ALLOCBENCH_LOAD)
#undef ALLOCBENCH_LOAD
  auto const check = [&](char const* name, Result result) {
    if (result != kSuccess) throw SpecError("no CUDA device found: " + describe(name, result));
  };
  check(init.name, init(0u));
  check(driver_version.name, driver_version(&version));
  check(device_count.name, device_count(&devices));
}

std::string Driver::describe(char const* call, Result result) const {
  char const* name = nullptr;
  char const* text = nullptr;
  std::string message = std::string(call).substr(0, std::string(call).find("_v2")) + ": ";
  message += error_name(result, &name) == kSuccess ? name : "unknown error";
  message += " (" + std::to_string(result);
  if (error_text(result, &text) == kSuccess) message += std::string(": ") + text;
  return message + ")";
}

}  // namespace allocbench::cuda
