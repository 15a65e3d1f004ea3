// parts/stream_lists.hpp: one free list for each stream, and the search across all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>

#include "parts/node.hpp"

namespace allocbench {

// A request is served from the list of its own stream. If no block there is large enough, the first
// other list with such a block serves it; the stream then waits for the other one. If no list has
// one, the other lists are merged into the list of the stream, one after the other, until a block
// is large enough. Lists are searched in the order in which their streams were first used.
//
// RMM orders the lists by the addresses of CUDA events instead, which it creates in that order.
// Source: stream_ordered_memory_resource in RMM 25.04.
//
// A `List` has `Index fit(Size wanted) const`, which returns kNone if no block is large enough.
template <class List>
class StreamLists {
 public:
  struct Choice {
    List& list;
    Index block;  // kNone: no list has one, and `list` is the list of the stream
  };

  // The list of a stream, created from `arguments` when the stream is first used.
  template <class... Arguments>
  List& of(Stream stream, Arguments&... arguments) {
    for (Entry& entry : entries_)
      if (entry.stream == stream) return entry.list;
    return entries_.emplace_back(stream, arguments...).list;
  }

  // `absorb(other)` moves all blocks of another list into `own`, the list of the stream.
  template <class Absorb>
  Choice choose(Size wanted, List& own, Absorb absorb) {
    if (Index const block = own.fit(wanted); block != kNone) return {own, block};
    for (Entry& entry : entries_)
      if (Index const block = entry.list.fit(wanted); block != kNone) return {entry.list, block};
    for (Entry& entry : entries_) {
      if (&entry.list == &own) continue;
      absorb(entry.list);
      if (Index const block = own.fit(wanted); block != kNone) return {own, block};
    }
    return {own, kNone};
  }

  std::size_t size() const { return entries_.size(); }

  template <class Visit>
  void for_each(Visit visit) {
    for (Entry& entry : entries_) visit(entry.list);
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (Entry const& entry : entries_) visit(entry.list);
  }

 private:
  struct Entry {
    template <class... Arguments>
    explicit Entry(Stream of, Arguments&... arguments) : stream(of), list(arguments...) {}
    Stream stream;
    List list;
  };
  std::deque<Entry> entries_;  // references to lists stay valid
};

}  // namespace allocbench
