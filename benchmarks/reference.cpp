// reference.cpp: the least that a thread-safe allocator with checked frees can do.
// SPDX-License-Identifier: Apache-2.0
//
// Replays a CSV trace (op,id,size). An event is a virtual call that takes a lock, does one look-up
// in a hash table (an alloc inserts its address, a free finds and erases it) and, for an alloc,
// moves a pointer. It keeps no statistics, makes no block reusable and notifies nobody.
//
//   c++ -O3 -DNDEBUG -std=c++20 reference.cpp -o reference
//   reference mutex|spin|none TRACE PASSES
//
// Prints the minimum of the passes: `ns_per_event min=12.3`.
#include "replayed.hpp"

namespace {

template <class Lock>
class Bump final : public Allocator {
 public:
  explicit Bump(std::size_t most) : live_(most) {}

  Address allocate(std::uint64_t size) override {
    std::scoped_lock const guard(lock_);
    Address const address = next_;
    next_ += (size + 511) / 512 * 512;
    live_.insert(address, size);
    return address;
  }

  void free(Address address) override {
    std::scoped_lock const guard(lock_);
    live_.erase(address);
  }

 private:
  Lock lock_;
  Table live_;
  Address next_ = 512;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: reference mutex|spin|none TRACE PASSES\n";
    return 2;
  }
  Trace const trace = read(arguments[2]);
  auto const allocator = with_lock(arguments[1], [&]<class Lock>() -> std::unique_ptr<Allocator> {
    return std::make_unique<Bump<Lock>>(trace.most);
  });
  std::cout << "ns_per_event min="
            << replay(trace, *allocator, std::strtol(arguments[3], nullptr, 10)) << '\n';
}
