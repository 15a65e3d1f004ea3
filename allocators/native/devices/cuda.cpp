// devices/cuda.cpp: the memory of an NVIDIA GPU, through the CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <set>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "devices/cuda_current.hpp"

namespace allocbench {
namespace {

using cuda::kDeinitialized;
using cuda::kOutOfMemory;
using cuda::kSuccess;

// The devices of this process, which give back what is left when it ends: after Python has let go
// of what it can, and before the driver goes, which was loaded before the first of them.
class Open {
 public:
  static Open& all() {
    static Open* const open = new Open;
    return *open;
  }
  // Calls `meet` for each of the others.
  template <class Meet>
  void add(CudaDevice* device, Meet meet) {
    std::scoped_lock const guard(mutex_);
    for (CudaDevice* other : devices_) meet(*other);
    devices_.insert(device);
  }
  void remove(CudaDevice* device) {
    std::scoped_lock const guard(mutex_);
    devices_.erase(device);
  }

 private:
  Open() {
    std::atexit([] {
      std::scoped_lock const guard(all().mutex_);
      for (CudaDevice* device : all().devices_) device->close();
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

// Makes a call in the device's context; returns its result and adds its duration to `seconds`.
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

bool CudaDevice::noted(char const* call, cuda::Result result, Size size) {
  if (result == kSuccess) return true;
  std::string text = "cuda:" + std::to_string(ordinal_) + ": " + driver_.describe(call, result);
  if (size != 0) text += " for " + human_bytes(size);
  fail(std::move(text));
  return false;
}

CudaDevice::CudaDevice(int ordinal, std::optional<Size> limit)
    : driver_(driver_with(ordinal)), ordinal_(ordinal), process_(getpid()) {
  auto const demand = [&](auto const& call, auto... arguments) {
    if (noted(call.name, call(arguments...))) return;
    if (context_ != nullptr) driver_.context_release(id_);
    throw DeviceError(take_failure().value_or(call.name));
  };
  std::array<char, 256> name{};
  std::size_t bytes = 0;
  int has_pages = 0, has_pools = 0;
  demand(driver_.device_get, &id_, ordinal);
  demand(driver_.device_name, name.data(), static_cast<int>(name.size() - 1), id_);
  demand(driver_.device_bytes, &bytes, id_);
  demand(driver_.device_attribute, &has_pages, static_cast<int>(cuda::kVirtualMemory), id_);
  demand(driver_.device_attribute, &has_pools, static_cast<int>(cuda::kMemoryPools), id_);
  demand(driver_.context_retain, &context_, id_);
  name_ = name.data();
  has_pools_ = has_pools != 0;
  total_ = bytes;
  most_ = std::min<Size>(bytes, limit.value_or(bytes));
  capacity_ = most_;
  granularity_ = 2 * kMiB;
  if (has_pages != 0) {
    cuda::AllocationProperties const properties{.location = {.id = id_}};
    std::size_t granularity = 0;
    demand(driver_.granularity, &granularity, &properties, 0);
    granularity_ = granularity;
  }
  number(nullptr);
  Open::all().add(this, [this](CudaDevice& other) {
    other.open_to(*this);
    open_to(other);
  });
}

CudaDevice::~CudaDevice() {
  close();
  Open::all().remove(this);
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
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (at == 4 || at == 6 || at == 8 || at == 10) text += '-';
    text += {kDigits[bytes[at] >> 4], kDigits[bytes[at] & 15]};
  }
  return text;
}

std::optional<Size> CudaDevice::free_bytes() {
  std::size_t free = 0, total = 0;
  if (!run_aside(driver_.memory_info, &free, &total)) return std::nullopt;
  return free;
}

Address CudaDevice::do_allocate(Size size, Size reserved, double& seconds) {
  if (!usable() || size == 0 || size > capacity() - std::min(capacity(), reserved)) return 0;
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
  bool const got = current && run_on(size, seconds, driver_.reserve, &address, std::size_t{size},
                                     std::size_t{0}, cuda::Pointer{0}, 0ull);
  return got ? address : 0;
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
  if (!usable() || size > capacity() - std::min(capacity(), reserved)) return false;
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
  bool const open = mapped && run_on(size, seconds, driver_.set_access, cuda::Pointer{page},
                                     std::size_t{size}, access.data(), access.size());
  if (mapped && !open) run_on(size, seconds, driver_.unmap, cuda::Pointer{page}, std::size_t{size});
  if (open) pages_.emplace(page, size);
  // Mapped memory stays until it is unmapped.
  if (!run_on(size, seconds, driver_.release, memory)) unreleased_.push_back(memory);
  return open;
}

bool CudaDevice::do_unmap(Address page, Size size, double& seconds) {
  if (inherited()) return true;
  Current const current(*this);
  if (!current) return false;
  cuda::Result const waited = driver_.synchronize();
  if (waited == kDeinitialized) return true;
  std::scoped_lock const guard(access_mutex_);
  bool const gone = noted(driver_.synchronize.name, waited) &&
                    run_on(size, seconds, driver_.unmap, cuda::Pointer{page}, std::size_t{size});
  if (gone) pages_.erase(page);
  return gone;
}

Device::Pool CudaDevice::do_open_pool(Size keep, double& seconds) {
  if (!usable()) return 0;
  Current const current(*this);
  cuda::PoolProperties const properties{.location = {.id = id_}};
  cuda::MemoryPool pool = nullptr;
  std::uint64_t threshold = keep;
  if (!current ||
      !noted(driver_.pool_create.name, run(seconds, driver_.pool_create, &pool, &properties)))
    return 0;
  cuda::Result const set =
      run(seconds, driver_.pool_set, pool, static_cast<int>(cuda::kReleaseThreshold),
          static_cast<void*>(&threshold));
  if (!noted(driver_.pool_set.name, set)) {
    driver_.pool_destroy(pool);
    return 0;
  }
  std::scoped_lock const guard(access_mutex_);
  auto const access = accesses();  // the first is the owner's, which it has
  if (access.size() > 1)
    noted(driver_.pool_set_access.name,
          run(seconds, driver_.pool_set_access, pool, access.data() + 1, access.size() - 1));
  open_pools_.insert(pool);
  return reinterpret_cast<Pool>(pool);
}

Address CudaDevice::do_allocate_from(Pool pool, Size size, Stream stream, Size others,
                                     double& seconds) {
  if (!usable() || size > capacity() - std::min(capacity(), others)) return 0;
  cuda::Stream const on = this->stream(stream);
  Current const current(*this);
  cuda::Pointer address = 0;
  bool const got =
      current && run_on(size, seconds, driver_.pool_allocate, &address, std::size_t{size},
                        reinterpret_cast<cuda::MemoryPool>(pool), on);
  if (!got || others + do_held_by(pool, 0) <= capacity()) return got ? address : 0;
  do_free_to(pool, address, stream, seconds);  // the pool grew over the limit
  if (!keeps_memory()) do_trim_pool(pool, seconds);
  return 0;
}

bool CudaDevice::do_free_to(Pool, Address block, Stream stream, double& seconds) {
  if (inherited()) return true;
  cuda::Stream const on = this->stream(stream);
  Current const current(*this);
  if (!current) return false;
  cuda::Result const result = run(seconds, driver_.pool_free, cuda::Pointer{block}, on);
  return result == kDeinitialized || noted(driver_.pool_free.name, result);
}

void CudaDevice::do_trim_pool(Pool pool, double& seconds) {
  if (inherited()) return;
  Current const current(*this);
  if (!current) return;
  // Freed memory that its stream has not reached yet cannot be trimmed.
  if (noted(driver_.synchronize.name, driver_.synchronize()))
    run_on(0, seconds, driver_.pool_trim, reinterpret_cast<cuda::MemoryPool>(pool), std::size_t{0});
}

Size CudaDevice::do_held_by(Pool pool, Size before) {
  if (inherited()) return before;
  std::uint64_t bytes = before;
  Current const current(*this);
  if (current)
    noted(driver_.pool_get.name,
          driver_.pool_get(reinterpret_cast<cuda::MemoryPool>(pool),
                           static_cast<int>(cuda::kReserved), static_cast<void*>(&bytes)));
  return bytes;
}

bool CudaDevice::do_close_pool(Pool pool, double& seconds) {
  if (inherited()) return true;
  Current const current(*this);
  if (!current) return false;
  auto const closing = reinterpret_cast<cuda::MemoryPool>(pool);
  std::scoped_lock const guard(access_mutex_);
  cuda::Result const result = run(seconds, driver_.pool_destroy, closing);
  bool const gone = result == kDeinitialized || noted(driver_.pool_destroy.name, result);
  if (gone) open_pools_.erase(closing);
  return gone;
}

// Lets another GPU reach the pages and the pools, those of now and of later, if it can.
void CudaDevice::open_to(CudaDevice& peer) {
  int can = 0;
  if (peer.id_ == id_ || closed() || peer.closed() ||
      !run_aside(driver_.can_access_peer, &can, peer.id_, id_) || can == 0)
    return;
  std::scoped_lock const guard(access_mutex_);
  if (std::ranges::find(peers_, peer.id_) != peers_.end()) return;
  peers_.push_back(peer.id_);
  cuda::Access const access{.location = {.id = peer.id_}};
  for (auto const& [page, size] : pages_)
    run_aside(driver_.set_access, page, std::size_t{size}, &access, std::size_t{1});
  for (cuda::MemoryPool const pool : open_pools_)
    run_aside(driver_.pool_set_access, pool, &access, std::size_t{1});
}

// Of pages: the owner's, then those of the peers.
std::vector<cuda::Access> CudaDevice::accesses() const {
  std::vector<cuda::Access> found = {{.location = {.id = id_}}};
  for (cuda::DeviceId const peer : peers_) found.push_back({.location = {.id = peer}});
  return found;
}

void CudaDevice::do_close() {
  if (inherited()) return;
  for (cuda::Allocation const memory : unreleased_) run_aside(driver_.release, memory);
  for (cuda::Stream const stream : made_here_) run_aside(driver_.stream_destroy, stream);
  cuda::Result const result = driver_.context_release(id_);
  if (result != kDeinitialized) noted(driver_.context_release.name, result);
}

}  // namespace allocbench
