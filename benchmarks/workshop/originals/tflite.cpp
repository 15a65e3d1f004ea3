// TensorFlow Lite's ArenaPlanner, from the sources of LiteRT, as a planner: FILE OUT reads
// lifetimes as id,lower,upper,size and writes id,offset. SPDX-License-Identifier: Apache-2.0
//
// A node for each point in time at which a block begins. A block is an output of the node at which
// it begins, and an input of the last node that begins before its end.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tflite/arena_planner.h"

namespace {

struct Block {
  long long id, lower, upper, size;
};

std::vector<Block> read(char const* file) {
  std::vector<Block> blocks;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  for (Block one{}; std::getline(in, line); blocks.push_back(one))
    std::sscanf(line.c_str(), "%lld,%lld,%lld,%lld", &one.id, &one.lower, &one.upper, &one.size);
  return blocks;
}

class Graph : public tflite::GraphInfo {
 public:
  explicit Graph(std::vector<Block> const& blocks) : tensors_(blocks.size()) {
    std::set<long long> begins;
    for (Block const& block : blocks) begins.insert(block.lower);
    std::map<long long, int> node_of;
    for (long long const time : begins) node_of.emplace(time, static_cast<int>(node_of.size()));
    std::vector<std::vector<int>> inputs(begins.size()), outputs(begins.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Block const& block = blocks[i];
      tensors_[i] = TfLiteTensor{};
      tensors_[i].type = kTfLiteInt8;
      tensors_[i].allocation_type = kTfLiteArenaRw;
      tensors_[i].bytes = static_cast<std::size_t>(block.size);
      int const first = node_of[block.lower];
      int const last = std::prev(node_of.lower_bound(block.upper))->second;
      outputs[first].push_back(static_cast<int>(i));
      // A tensor without a reader would live to the end.
      inputs[std::max(first, last)].push_back(static_cast<int>(i));
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
      TfLiteNode node{};
      node.inputs = array(inputs[i]);
      node.outputs = array(outputs[i]);
      node.temporaries = array({});
      nodes_.push_back(node);
    }
    registration_.builtin_code = tflite::BuiltinOperator_CUSTOM;  // never in place
  }

  std::size_t num_tensors() const override { return tensors_.size(); }
  TfLiteTensor* tensor(std::size_t index) override { return &tensors_[index]; }
  TfLiteTensor* tensors() override { return tensors_.data(); }
  std::size_t num_execution_nodes() const override { return nodes_.size(); }
  std::size_t num_total_nodes() const override { return nodes_.size(); }
  TfLiteNode const& node(std::size_t index) const override { return nodes_[index]; }
  TfLiteRegistration const& registration(std::size_t) const override { return registration_; }
  std::size_t node_index(std::size_t index) const override { return index; }
  std::vector<int> const& inputs() const override { return none_; }
  std::vector<int> const& outputs() const override { return none_; }
  std::vector<int> const& variables() const override { return none_; }

 private:
  static TfLiteIntArray* array(std::vector<int> const& values) {
    TfLiteIntArray* const made = TfLiteIntArrayCreate(static_cast<int>(values.size()));
    std::copy(values.begin(), values.end(), made->data);
    return made;
  }

  std::vector<TfLiteTensor> tensors_;
  std::vector<TfLiteNode> nodes_;
  TfLiteRegistration registration_{};
  std::vector<int> none_;
};

// Addresses without memory.
char* const kBase = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
void* allocate(void*, std::size_t, std::size_t) { return kBase; }
void* reallocate(void*, void*, std::size_t, std::size_t, std::size_t) { return kBase; }
void deallocate(void*, void*, std::size_t, std::size_t) {}
void report(TfLiteContext*, char const* text, ...) { std::fputs(text, stderr); }

}  // namespace

int main(int, char** arguments) {
  std::vector<Block> const blocks = read(arguments[1]);
  auto owned = std::make_unique<Graph>(blocks);
  Graph& graph = *owned;
  TfLiteContext context{};
  context.tensors = graph.tensors();
  context.tensors_size = graph.num_tensors();
  context.ReportError = report;
  TfLiteAllocator allocator{nullptr, allocate, reallocate, deallocate};
  constexpr int kAlignment = 64;
  tflite::ArenaPlanner planner(&context, std::move(owned), false, kAlignment, 0, &allocator);
  int const last = static_cast<int>(graph.num_execution_nodes()) - 1;
  if (planner.PlanAllocations() != kTfLiteOk || planner.ExecuteAllocations(0, last) != kTfLiteOk)
    return 1;
  std::ofstream out(arguments[2]);
  out << "id,offset\n";
  auto const base = planner.BasePointer(kTfLiteArenaRw);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    out << blocks[i].id << ',' << reinterpret_cast<std::intptr_t>(graph.tensor(i)->data.raw) - base
        << '\n';
  return 0;
}
