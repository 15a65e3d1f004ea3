// devices/recorded.hpp: a simulated device that answers as one in a recording did.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "devices/simulated.hpp"

namespace allocbench {

// A call gets the address that it got in the recording. A device that was asked to free next had
// refused: the call that comes instead is refused too, once for each call to free. Whatever the
// recording does not have is served as by a simulated device, at addresses of its own; so is what
// lay where the replay still holds something.
class RecordedDevice final : public SimulatedDevice {
 public:
  // `calls` in order, of memory that was given or taken back; seconds do not count.
  RecordedDevice(Size capacity, std::vector<Call> calls);

 private:
  Address do_allocate(Size size, Size reserved, double& seconds) override;
  bool do_free(Address segment, Size size, double& seconds) override;
  Address do_reserve(Size size, double& seconds) override;
  bool do_map(Address page, Size size, Size reserved, double& seconds) override;
  bool do_unmap(Address page, Size size, double& seconds) override;
  bool do_unreserve(Address reservation, Size size, double& seconds) override;
  bool do_adopt(Address address, Size size) override;

  struct Expected {
    Call call;
    Size left;  // bytes: a call to map or unmap may have been several pages at once
  };
  bool refuses();
  bool overlaps(Address address, Size size) const;  // something held
  void pass_over();
  void note(CallKind kind, Address address, Size size);

  std::vector<Expected> expected_;
  std::map<Address, Size> held_;  // segments; reservations, of which only the begin counts
  std::size_t next_ = 0;
  Size refused_with_ = 0;  // bytes that were still to be taken back at the last refusal
};

}  // namespace allocbench
