// devices/recorded.hpp: a simulated device that repeats the answers of a recorded device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "devices/simulated.hpp"

namespace allocbench {

// A call returns the address that it returned in the recording. If the next recorded calls return
// memory to the device, the recorded device must have refused a request; so a request that comes
// instead of them is refused as well, until that memory has been returned. A call that is not in
// the recording, or whose address is still in use in the replay, is served as on a simulated
// device, at an unused address.
class RecordedDevice final : public SimulatedDevice {
 public:
  // `calls` are the successful calls of the recording, in order; their `seconds` are not used.
  RecordedDevice(Size capacity, std::vector<Call> calls);
  bool has_driver_pools() const override { return false; }  // a recording shows nothing of them

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
    Size left;  // bytes not yet replayed: one recorded call may map or unmap several pages
  };
  bool refuses();
  bool overlaps(Address address, Size size) const;
  void skip_replayed();
  void note(CallKind kind, Address address, Size size);

  std::vector<Expected> expected_;
  std::map<Address, Size> held_;  // segments with their sizes; reservations with size 0
  std::size_t next_ = 0;
  Size pending_at_refusal_ = 0;  // bytes still to be returned at the last refusal
};

}  // namespace allocbench
