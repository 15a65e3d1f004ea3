// native/virtual_memory.hpp: the rules of CUDA's virtual memory: reservations, pieces, mappings.
// SPDX-License-Identifier: Apache-2.0
//
// A use that the driver's documentation forbids is kInvalidValue, and changes nothing. The caller
// finds the addresses and counts the bytes.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "gpu/pages.hpp"
#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

class VirtualMemory {
 public:
  using Piece = unsigned long long;  // CUmemGenericAllocationHandle
  // Called with the device and the bytes of a piece that no handle and no mapping refers to.
  using Freed = std::function<void(int device, Size size)>;

  explicit VirtualMemory(Freed freed) : freed_(std::move(freed)) {}

  // An address range was reserved.
  void reserved(Address begin, Size size);
  // The range must be a whole reservation in which nothing is mapped.
  Status unreserve(Address begin, Size size);

  // Memory of a device was taken for a piece.
  Piece created(Size size, int device);
  // One more handle of the piece that is mapped at an address.
  Status retain(Address address, Piece* piece);
  Status release(Piece piece);

  // The range must lie in one reservation, be as large as the piece, and have nothing mapped in it.
  Status map(Address begin, Size size, Piece piece);
  // The range must consist of whole mappings that follow one another, as in the next two.
  Status unmap(Address begin, Size size);
  Status allow(Address begin, Size size, int device);
  bool allowed(Address address, int device) const;
  // Whether a reservation begins at an address.
  bool reserved_at(Address begin) const;
  // Whether all of a range is mapped.
  bool mapped(Address begin, Size size) const;

  struct Counts {
    std::size_t reservations, pieces, mappings;
  };
  Counts counts() const;

 private:
  struct Memory {
    Size size;
    int device;
    int handles = 1, mappings = 0;
  };
  struct Mapping {
    Size size;
    Piece piece;
    std::set<int> devices = {};  // that may access it
  };

  bool whole_mappings(Address begin, Size size) const;
  void free_unused(Piece piece);

  Freed freed_;
  mutable std::mutex mutex_;
  Piece last_ = 0;
  std::map<Address, Size> reservations_;
  std::unordered_map<Piece, Memory> pieces_;
  std::map<Address, Mapping> mappings_;
};

VirtualMemory& virtual_memory();  // of this process

}  // namespace allocbench::null_gpu
