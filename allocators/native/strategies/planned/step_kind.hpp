// strategies/planned/step_kind.hpp: one kind of step, and where the blocks of its steps lie.
// lie. SPDX-License-Identifier: Apache-2.0
//
// Steps of one kind have equally many requests whose blocks die at the same places in the
// sequence; sizes differ, for batches differ in length. The first request whose size varies is the
// key: the size of every other request is taken to be a linear function of its size, above all
// that was seen, which for the tensors of a model is mostly exact. So a step is planned twice, for
// the smallest and for the largest key, with the same blocks above the same, and a step whose key
// lies between finds its places between those of the two plans, in proportion. Beyond the largest
// key the proportion is carried on; where only one step was seen, the plan is stretched. When more
// is known, blocks stay above one another as they were, unless that wastes bytes. A request
// whose sizes follow no line has no place. Where many large ones follow none, as where tokens are
// routed to experts, none has: pages would only move between the blocks that have one and the
// others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/types.hpp"
#include "parts/node.hpp"

namespace allocbench {

class StepKind {
 public:
  static constexpr Size kUnit = 512;    // bytes: places are multiples of it
  static constexpr Size kLeast = kMiB;  // smaller requests are not worth a place
  static constexpr Size kNowhere = ~Size{0};

  enum class When : std::uint8_t { kUnknown, kThisStep, kNextStep, kLater };
  struct End {  // of a block
    When when = When::kUnknown;
    std::uint32_t last = 0;  // requests made before the free, in the step of the free
    bool operator==(End const&) const = default;
  };
  struct Seen {  // a request of a step
    Size size;
    End end = {};
  };
  using Step = std::vector<Seen>;

  // How a step lies between the two plans, as far as it is known.
  struct Pose {
    double proportion = 1;  // 0 at the smallest key, 1 at the largest
    double stretch = 1;
  };

  std::size_t size() const { return requests_.size(); }
  std::uint64_t seen() const { return seen_; }  // steps

  // Whether a request of a step is of a size like those seen before.
  bool agrees(std::size_t request, Size size) const {
    return request < requests_.size() && requests_[request].agrees(size);
  }
  // Whether it speaks against the kind. One step alone does not tell which sizes vary.
  bool contradicts(std::size_t request, Size size) const {
    if (request >= requests_.size()) return true;
    Request const& known = requests_[request];
    return seen_ > 1 && !known.erratic && !known.agrees(size);
  }
  // Whether a step that is over is of this kind: equally many requests, and nine in ten of the
  // large ones end where they ended before. Only ends of large ones are looked at.
  bool alike(Step const& step) const;

  // The planned offset of a request, or kNowhere. The pose follows what the step asks for.
  Size place(std::size_t request, Size size, Pose& pose) const;
  // Bytes from the lowest offset to the highest end of a step in that pose; 0 without places.
  Size height(Pose const& pose) const;
  // The pose of a step that has asked for this much.
  Pose pose(Step const& begun) const;

  void see_sizes(Step const& step);
  // The ends of blocks that died in their step or, after the next step, of all others.
  void see_ends(Step const& step, bool others);

  bool planned() const { return planned_; }  // some requests have places
  bool stale() const { return stale_; }      // it changed since it was planned
  std::uint64_t price() const;               // of a plan, in comparisons
  void plan();

 private:
  struct Request {
    Size low, high;  // bytes at the smallest and at the largest key
    End end = {};
    End odd = {};          // the end that was seen last
    bool erratic = false;  // its sizes follow no line
    bool planned = false;
    Size low_offset = 0, high_offset = 0;

    bool agrees(Size size) const {
      return std::min(low, high) <= size && size <= std::max(low, high);
    }
    Size at(double proportion) const;
    bool see_size(Size size, double proportion);
    bool see_end(End seen);
    bool worth_a_place(std::size_t number) const;
  };
  struct Chosen {                         // to have places
    std::vector<std::uint32_t> requests;  // by number
    std::size_t kept = 0;                 // the first so many have places by now
  };

  double proportion(Size key) const;
  bool is_erratic() const;  // too many large requests are: then none has a place
  Chosen chosen() const;
  void find_key(Step const& step);
  void widen(Step const& step, bool below);

  std::vector<Request> requests_;
  std::uint64_t seen_ = 0;  // steps
  Index key_ = kNone;       // the request; none while no size varies
  Size low_key_ = 0, high_key_ = 0;
  Size low_height_ = 0, high_height_ = 0;
  bool planned_ = false;
  bool stale_ = true;
  bool anew_ = false;  // no place is to be kept
};

}  // namespace allocbench
