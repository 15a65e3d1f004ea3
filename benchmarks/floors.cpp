// floors.cpp: the least work of tlsf, buddy and slab, each with a lock and checked frees.
// SPDX-License-Identifier: Apache-2.0
//
// Replays a CSV trace (op,id,size), as reference.cpp does, but through the least that makes blocks
// reusable as these strategies do. Memory is one range that never ends. There are no statistics, no
// checks but that of a free, no calls of a device, and nothing is returned.
//
//   c++ -O3 -DNDEBUG -std=c++20 floors.cpp -o floors
//   floors tlsf|buddy|slab mutex|spin|none TRACE PASSES
//
// Prints the minimum of the passes: `ns_per_event min=12.3`.
#include <array>

#include "replayed.hpp"

namespace {

using Index = std::uint32_t;
constexpr std::uint64_t kUnit = 256;

// The classes of tlsf and slab: each power of two has 2^bits of them.
template <int bits>
struct Classes {
  static constexpr std::size_t kCount = std::size_t{64} << bits;
  static std::size_t of(std::uint64_t size) {
    int const power = 63 - std::countl_zero(size);
    return static_cast<std::size_t>(power - bits) << bits | (size >> (power - bits));
  }
  static std::size_t at_least(std::uint64_t size) { return of(size) + (smallest(of(size)) < size); }
  static std::uint64_t smallest(std::size_t number) {
    return ((std::uint64_t{1} << bits) + number % (1 << bits)) << (number >> bits) >> 1;
  }
};

// Records of blocks; number 0 stands for none and may be written to.
struct Record {
  Address address = 0;
  std::uint64_t size = 0;
  Index previous = 0, next = 0;  // neighbors
  Index left = 0, right = 0;     // in the list of free blocks
  bool free = false;
};

class Records {
 public:
  Index make(Record const& record) {
    if (unused_.empty()) {
      records_.push_back(record);
      return static_cast<Index>(records_.size() - 1);
    }
    Index const number = unused_.back();
    unused_.pop_back();
    records_[number] = record;
    return number;
  }
  void drop(Index number) { unused_.push_back(number); }
  Record& operator[](Index number) { return records_[number]; }

  // Splits a block, which keeps its first `size` bytes; returns the rest.
  Index split(Index block, std::uint64_t size) {
    Record const old = records_[block];
    Index const rest = make({old.address + size, old.size - size, block, old.next});
    records_[old.next].previous = rest;
    records_[block].next = rest;
    records_[block].size = size;
    return rest;
  }
  // Adds the next block to a block.
  void join(Index block) {
    Index const next = records_[block].next;
    records_[block].size += records_[next].size;
    records_[block].next = records_[next].next;
    records_[records_[next].next].previous = block;
    drop(next);
  }

 private:
  std::vector<Record> records_ = std::vector<Record>(1);
  std::vector<Index> unused_;
};

// Lists of free blocks, the last freed one first, with a bit for each list that is not empty.
template <std::size_t count>
class Lists {
 public:
  void add(Records& records, std::size_t list, Index block) {
    Index const head = heads_[list];
    records[block].left = 0;
    records[block].right = head;
    records[block].free = true;
    records[head].left = block;
    heads_[list] = block;
    bits_[list / 64] |= std::uint64_t{1} << list % 64;
    words_ |= std::uint64_t{1} << list / 64;
  }
  void remove(Records& records, std::size_t list, Index block) {
    auto const [left, right] = std::pair{records[block].left, records[block].right};
    (left == 0 ? heads_[list] : records[left].right) = right;
    records[right].left = left;
    records[block].free = false;
    if (heads_[list] != 0) return;
    bits_[list / 64] &= ~(std::uint64_t{1} << list % 64);
    if (bits_[list / 64] == 0) words_ &= ~(std::uint64_t{1} << list / 64);
  }
  // The first list from `from` on that is not empty; there must be one.
  std::size_t first(std::size_t from) const {
    std::size_t word = from / 64;
    std::uint64_t bits = bits_[word] & ~std::uint64_t{0} << from % 64;
    if (bits == 0) {
      word = static_cast<std::size_t>(std::countr_zero(words_ & ~std::uint64_t{1} << word));
      bits = bits_[word];
    }
    return 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
  }
  Index head(std::size_t list) const { return heads_[list]; }

 private:
  std::array<Index, count> heads_ = {};
  std::array<std::uint64_t, count / 64> bits_ = {};
  std::uint64_t words_ = 0;
};

template <class Lock>
class Tlsf final : public Allocator {
 public:
  explicit Tlsf(std::size_t most) : live_(most) { add(records_.make({kUnit, kMemory})); }

  Address allocate(std::uint64_t size) override {
    std::scoped_lock const guard(lock_);
    std::uint64_t const rounded = (size + kUnit - 1) / kUnit * kUnit;
    Index const block = lists_.head(lists_.first(Class::at_least(rounded)));
    remove(block);
    if (rounded < records_[block].size) add(records_.split(block, rounded));
    live_.insert(records_[block].address, block);
    return records_[block].address;
  }

  void free(Address address) override {
    std::scoped_lock const guard(lock_);
    auto block = static_cast<Index>(live_.erase(address));
    if (Index const next = records_[block].next; records_[next].free) {
      remove(next);
      records_.join(block);
    }
    if (Index const previous = records_[block].previous; records_[previous].free) {
      remove(previous);
      records_.join(previous);
      block = previous;
    }
    add(block);
  }

 private:
  using Class = Classes<5>;
  static constexpr std::uint64_t kMemory = std::uint64_t{1} << 50;

  void add(Index block) { lists_.add(records_, Class::of(records_[block].size), block); }
  void remove(Index block) { lists_.remove(records_, Class::of(records_[block].size), block); }

  Lock lock_;
  Table live_;
  Records records_;
  Lists<Class::kCount> lists_;
};

template <class Lock>
class Buddy final : public Allocator {
 public:
  explicit Buddy(std::size_t most) : live_(most) {
    add(records_.make({kMemory, kMemory}));  // the lowest bits of the address are the offset
  }

  Address allocate(std::uint64_t size) override {
    std::scoped_lock const guard(lock_);
    std::uint64_t const rounded = std::bit_ceil(std::max<std::uint64_t>(size, 1024));
    Index const block = lists_.head(lists_.first(level(rounded)));
    remove(block);
    while (rounded < records_[block].size) add(records_.split(block, records_[block].size / 2));
    live_.insert(records_[block].address, block);
    return records_[block].address;
  }

  void free(Address address) override {
    std::scoped_lock const guard(lock_);
    auto block = static_cast<Index>(live_.erase(address));
    for (;;) {
      Record const& record = records_[block];
      bool const upper = (record.address & record.size & (kMemory - 1)) != 0;
      Index const buddy = upper ? record.previous : record.next;
      if (!records_[buddy].free || records_[buddy].size != record.size) break;
      remove(buddy);
      if (upper) block = buddy;
      records_.join(block);
    }
    add(block);
  }

 private:
  static constexpr std::uint64_t kMemory = std::uint64_t{1} << 50;

  static std::size_t level(std::uint64_t size) {
    return static_cast<std::size_t>(std::countr_zero(size));
  }
  void add(Index block) { lists_.add(records_, level(records_[block].size), block); }
  void remove(Index block) { lists_.remove(records_, level(records_[block].size), block); }

  Lock lock_;
  Table live_;
  Records records_;
  Lists<64> lists_;
};

template <class Lock>
class Slab final : public Allocator {
 public:
  explicit Slab(std::size_t most) : live_(most), slabs_(1) {}

  Address allocate(std::uint64_t size) override {
    std::scoped_lock const guard(lock_);
    std::size_t const number = Class::at_least((size + kUnit - 1) / kUnit << 3);
    Index slab = partial_[number];
    if (slab == 0) slab = make(number);
    Header& header = slabs_[slab];
    Address const address = header.free.back();
    header.free.pop_back();
    if (header.free.empty()) unlink(slab);
    live_.insert(address, slab);
    return address;
  }

  void free(Address address) override {
    std::scoped_lock const guard(lock_);
    auto const slab = static_cast<Index>(live_.erase(address));
    if (slabs_[slab].free.empty()) link(slab);
    slabs_[slab].free.push_back(address);
  }

 private:
  using Class = Classes<3>;
  static constexpr std::uint64_t kSlab = std::uint64_t{2} << 20;

  struct Header {
    std::size_t number;  // of its class
    Index left = 0, right = 0;
    std::vector<Address> free = {};
  };

  Index make(std::size_t number) {
    std::uint64_t const object = kUnit * Class::smallest(number) >> 3;
    auto const slab = static_cast<Index>(slabs_.size());
    slabs_.push_back({number});
    for (std::uint64_t objects = std::max<std::uint64_t>(kSlab / object, 1); objects > 0; --objects)
      slabs_[slab].free.push_back(std::exchange(next_, next_ + object));
    link(slab);
    return slab;
  }
  void link(Index slab) {
    Index& head = partial_[slabs_[slab].number];
    slabs_[slab].left = 0;
    slabs_[slab].right = head;
    slabs_[head].left = slab;
    head = slab;
  }
  void unlink(Index slab) {
    auto const [left, right] = std::pair{slabs_[slab].left, slabs_[slab].right};
    (left == 0 ? partial_[slabs_[slab].number] : slabs_[left].right) = right;
    slabs_[right].left = left;
  }

  Lock lock_;
  Table live_;
  std::vector<Header> slabs_;  // number 0 stands for none
  std::array<Index, Class::kCount> partial_ = {};
  Address next_ = kUnit;
};

template <class Lock>
std::unique_ptr<Allocator> make(std::string const& strategy, std::size_t most) {
  if (strategy == "tlsf") return std::make_unique<Tlsf<Lock>>(most);
  if (strategy == "buddy") return std::make_unique<Buddy<Lock>>(most);
  if (strategy == "slab") return std::make_unique<Slab<Lock>>(most);
  std::cerr << strategy << ": the strategy must be tlsf, buddy or slab\n";
  std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "usage: floors tlsf|buddy|slab mutex|spin|none TRACE PASSES\n";
    return 2;
  }
  Trace const trace = read(arguments[3]);
  auto const allocator =
      with_lock(arguments[2], [&]<class Lock>() { return make<Lock>(arguments[1], trace.most); });
  std::cout << "ns_per_event min="
            << replay(trace, *allocator, std::strtol(arguments[4], nullptr, 10)) << '\n';
}
