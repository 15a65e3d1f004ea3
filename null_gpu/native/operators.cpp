// native/operators.cpp: the operators that PyTorch's dispatcher calls.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/values.hpp"

namespace allocbench::null_gpu {

namespace {

// What an operator does, as the hook says when it is called for the first time.
enum Flags : unsigned {
  kIgnored = 1,     // writes nothing, or only what its schema does not name, such as sizes
  kAlways = 2,      // the hook is asked before each call with tensors on the GPU
  kCreates = 4,     // the hook is asked before each call
  kOverwrites = 8,  // former values of the arguments that it changes do not matter
  kUnwritten = 16,  // its result has no values yet: those of a program count as zeros
  kNative = 32,     // one of `natively`: mostly, the hook need not be asked
  kCounts = 64,     // the hook is asked if its first argument has whole numbers or truth values
};

// c10::IValue: a number, or a pointer to what it has.
struct Value {
  std::uint64_t payload;
  std::uint32_t tag;
};
static_assert(sizeof(Value) == 16);

struct Call;
using Natively = bool (*)(Value const* inputs, Call&);  // notes what is written; false: cannot
Natively natively(std::string_view name);

struct Operator {
  char const* name;
  unsigned flags;
  unsigned arguments, results;
  std::uint64_t written;  // a bit for each argument that it may change
  Natively natively = nullptr;
};

constexpr std::uint32_t kTensor = 1;
constexpr int kInt64 = 4, kFloat = 6;  // types of elements

// Elements of a tensor that the hook computes: see inside/following.py.
constexpr Size kMostElements = Size{1} << 20, kMostReal = Size{1} << 16;

// Positions in PyTorch's objects, in bytes; written by the hook in this order.
struct Layout {
  // at::RecordFunction
  std::int64_t schema, inputs, outputs;
  // c10::FunctionSchema
  std::int64_t overload;
  // c10::TensorImpl and c10::StorageImpl
  std::int64_t keys, elements, storage, data, bytes;
  // c10::IValue: tags, and where a list has its elements
  std::int64_t list_tag, int_tag, float_tag, list;
  // keys of tensors that have no plain memory
  std::uint64_t unusual;
  // functions of PyTorch
  char const* (*name)(void const* record_function);
  void (*enable)(bool observers);
  bool (*requires_grad)(void const* tensor);
  int (*type)(void const* tensor, int* type);
  int (*dimensions)(void const* tensor, std::int64_t* count);
  int (*sizes)(void const* tensor, std::int64_t const** sizes);
  int (*strides)(void const* tensor, std::int64_t const** strides);
  int (*address)(void const* tensor, void** address);
  // functions of the hook
  std::uint64_t (*describe)(Operator*, char const* name, char const* overload);
  std::uint64_t (*begin)(Operator*, Value const* inputs);
  void (*end)(Operator*, Value const* outputs, std::uint64_t token);
};
Layout layout;

struct Tensor {
  void const* address = nullptr;  // of the c10::TensorImpl
  Address begin = 0;              // of its storage
  Size bytes = 0;                 // of its storage
  Size elements = 0;
  bool plain = false;

  bool on_gpu() const {
    return begin != 0 && Machine::get().device_of(reinterpret_cast<void*>(begin)) >= 0;
  }
};

struct Call {
  void const* record;
  Operator* op;
  std::uint64_t writes;         // number of writes when it began
  std::uint64_t token;          // of the hook; 0: it does not wait for the end
  std::size_t kept;             // what operators within this one wrote is from here on
  std::size_t inputs;           // the storages of its arguments are from here on
  void const* first = nullptr;  // the first tensor among the arguments
  bool captured = false;
  bool wraps = false;        // some tensor among the arguments has its memory in another tensor
  bool in_creation = false;  // it is within a call whose result is made as a whole
  // What the operator copies from the host, or one value, if the hook needs to compute nothing.
  Address copy_to = 0;
  void const* copy_from = nullptr;
  Size copy_bytes = 0;
  std::array<char, 8> value = {};  // copied if copy_from is nullptr, as often as it fits
  // A range of whole numbers as the result, which begins with `first_number`; step 0: no range.
  std::int64_t first_number = 0, step = 0;

  // Whether the result does not depend on what the operators within this one write.
  bool makes_result() const {
    return in_creation || step != 0 || (token != 0 && (op->flags & kCreates) != 0);
  }
};

struct Thread {
  std::vector<Call> calls;
  std::vector<std::pair<Address, Size>> kept, inputs;
  std::array<std::pair<void const*, Operator*>, 1024> recent = {};  // operators, by schema

  // Whether an address is in the memory of an argument of a call, or of those within it.
  bool reads(Address address, Call const& call) const {
    return std::any_of(inputs.begin() + call.inputs, inputs.end(),
                       [&](auto const& input) { return address - input.first < input.second; });
  }
};
Thread& thread() {
  // Nearly every call of PyTorch's gets here several times.
  [[gnu::tls_model("initial-exec")]] static thread_local Thread* mine = nullptr;
  if (mine == nullptr) mine = new Thread;  // as few as there are threads
  return *mine;
}

template <class Part>
Part part(void const* object, std::int64_t offset) {
  Part value;
  std::memcpy(&value, static_cast<char const*>(object) + offset, sizeof value);
  return value;
}

Tensor tensor(std::uint64_t payload) {
  auto const* const address = reinterpret_cast<void const*>(payload);
  Tensor found{address};
  void const* const storage = part<void const*>(address, layout.storage);
  if (storage == nullptr) return found;
  found.begin = part<Address>(storage, layout.data);
  found.bytes = part<Size>(storage, layout.bytes);
  found.elements = part<Size>(address, layout.elements);
  found.plain = (part<std::uint64_t>(address, layout.keys) & layout.unusual) == 0;
  return found;
}

// Calls `visit` for each tensor of an argument or a result.
template <class Visit>
void each_tensor(Value const& value, Visit visit) {
  if (value.tag == kTensor) {
    if (value.payload != 0) visit(tensor(value.payload));
  } else if (value.tag == layout.list_tag) {
    auto const* const list = reinterpret_cast<void const*>(value.payload);
    auto const* element = part<Value const*>(list, layout.list);
    auto const* const end = part<Value const*>(list, layout.list + sizeof(void*));
    for (; element != end; ++element) each_tensor(*element, visit);
  }
}

struct Operators : Only<Operators> {
  std::shared_mutex mutex;
  std::unordered_map<void const*, Operator> of_schema;
};

// PyTorch tells no observer of what is called meanwhile on this thread.
class Unobserved {
 public:
  Unobserved() { layout.enable(false); }
  ~Unobserved() { layout.enable(true); }
};

// The operator that a record is about; nullptr if it is about a function or a named range.
Operator* operator_of(void const* record) {
  auto const* const schema = part<void const*>(record, layout.schema);
  auto& recent = thread().recent[reinterpret_cast<Address>(schema) / 64 % 1024];
  if (recent.first == schema) return recent.second;
  char const* const name = layout.name(record);
  if (schema == name) return nullptr;
  auto& all = Operators::get();
  {
    std::shared_lock const lock(all.mutex);
    auto const known = all.of_schema.find(schema);
    if (known != all.of_schema.end()) {
      recent = {schema, &known->second};
      return recent.second;
    }
  }
  Operator made{name, 0, 0, 0, 0};
  Operator* op;
  {
    std::unique_lock const lock(all.mutex);
    op = &all.of_schema.try_emplace(schema, made).first->second;
  }
  Unobserved const unobserved;
  std::uint64_t const told = layout.describe(op, name, part<char const*>(schema, layout.overload));
  op->arguments = told & 0xff;
  op->results = told >> 8 & 0xff;
  op->flags = told >> 16 & 0xff;
  op->written = told >> 24;
  if ((op->flags & kNative) != 0) op->natively = natively(op->name);
  return op;
}

// Where an operator's arguments or results begin in a stack, whose last entries they are.
Value const* last(Value const* begin, Size size, unsigned count) {
  return begin + (size > count ? size - count : 0);
}

// The address of the elements of a tensor that has no gaps, and the bytes of each; nullptr: it has
// some, or other than numbers.
void* dense(void const* const* tensor, int type, Size* element) {
  constexpr Size kElement[] = {1, 1, 2, 4, 8, 2, 4, 8, 0, 0, 0, 1, 0, 0, 0, 2};
  if (type < 0 || type >= static_cast<int>(std::size(kElement)) || kElement[type] == 0)
    return nullptr;
  std::int64_t count = 0, expected = 1;
  std::int64_t const *sizes = nullptr, *strides = nullptr;
  layout.dimensions(tensor, &count);
  layout.sizes(tensor, &sizes);
  layout.strides(tensor, &strides);
  for (std::int64_t dimension = count - 1; dimension >= 0; --dimension) {
    if (sizes[dimension] != 1 && strides[dimension] != expected) return nullptr;
    expected *= sizes[dimension];
  }
  void* address = nullptr;
  layout.address(tensor, &address);
  *element = kElement[type];
  return address;
}

bool is_real(int type) {
  constexpr int kFirstReal = 5, kBool = 11;
  return type >= kFirstReal && type != kBool;
}

// The most elements of a type that the hook computes.
Size most_elements(int type) { return is_real(type) ? kMostReal : kMostElements; }

int type_of(void const* tensor) {
  int type = -1;
  layout.type(&tensor, &type);
  return type;
}

// Where an operator writes a tensor of the GPU that the hook would compute; nullptr: it does not.
void* target(Tensor const& to, Call& call) {
  if (!to.on_gpu() || !to.plain || layout.requires_grad(to.address)) return nullptr;
  int const type = type_of(to.address);
  if (to.elements > most_elements(type)) return nullptr;
  Size element = 0;
  void* const address = dense(&to.address, type, &element);
  call.copy_to = reinterpret_cast<Address>(address);
  call.copy_bytes = element * to.elements;
  return address;
}

// For a copy from the host to the same elements of the same type on the GPU.
bool is_plain_copy(Value const* inputs, Call& call) {
  if (inputs[0].tag != kTensor || inputs[1].tag != kTensor) return false;
  Tensor const to = tensor(inputs[0].payload), from = tensor(inputs[1].payload);
  if (from.begin == 0 || from.on_gpu() || !from.plain || from.elements != to.elements) return false;
  int const type = type_of(from.address);
  if (target(to, call) == nullptr || type != type_of(to.address)) return false;
  Size element = 0;
  call.copy_from = dense(&from.address, type, &element);
  return call.copy_from != nullptr;
}

// For a known whole number to which one of the host is added, as models do that count their
// batches.
bool is_plain_sum(Value const* inputs, Call& call) {
  if (inputs[0].tag != kTensor || inputs[1].tag != kTensor || inputs[2].payload != 1) return false;
  Tensor const to = tensor(inputs[0].payload), from = tensor(inputs[1].payload);
  if (from.begin == 0 || from.on_gpu() || !from.plain) return false;
  if (to.elements != 1 || from.elements != 1 || type_of(from.address) != kInt64) return false;
  if (target(to, call) == nullptr || type_of(to.address) != kInt64) return false;
  std::int64_t sum = 0;
  if (!Values::get().read(call.copy_to, reinterpret_cast<char*>(&sum), sizeof sum)) return false;
  void* address = nullptr;
  layout.address(&from.address, &address);
  sum += part<std::int64_t>(address, 0);
  std::memcpy(call.value.data(), &sum, sizeof sum);
  return true;
}

// For a tensor that is set to one number.
bool is_plain_fill(Value const* inputs, Call& call) {
  if (inputs[0].tag != kTensor) return false;
  bool const is_int = inputs[1].tag == layout.int_tag;
  if (!is_int && inputs[1].tag != layout.float_tag) return false;
  Tensor const to = tensor(inputs[0].payload);
  if (target(to, call) == nullptr) return false;
  auto const number = static_cast<std::int64_t>(inputs[1].payload);
  if (number == 0) return true;
  if (int const type = type_of(to.address); type == kFloat) {
    auto const real = is_int ? static_cast<double>(number) : std::bit_cast<double>(number);
    auto const stored = static_cast<float>(real);
    std::memcpy(call.value.data(), &stored, sizeof stored);
    std::memcpy(call.value.data() + sizeof stored, &stored, sizeof stored);
  } else if (type == kInt64 && is_int) {
    std::memcpy(call.value.data(), &number, sizeof number);
  } else {
    return false;
  }
  return true;
}

// For whole numbers with the same distance, which positions are.
bool is_plain_range(Value const* inputs, Call& call) {
  unsigned const numbers = call.op->arguments - 4;  // the rest: type, layout, device, pinned
  for (unsigned index = 0; index < numbers; ++index)
    if (inputs[index].tag != layout.int_tag) return false;
  if (inputs[numbers].tag == layout.int_tag && inputs[numbers].payload != kInt64) return false;
  if (numbers > 1) call.first_number = static_cast<std::int64_t>(inputs[0].payload);
  call.step = numbers > 2 ? static_cast<std::int64_t>(inputs[2].payload) : 1;
  return call.step != 0;
}

// The function for an operator that has kNative.
Natively natively(std::string_view name) {
  return name == "aten::copy_"    ? is_plain_copy
         : name == "aten::add_"   ? is_plain_sum
         : name == "aten::arange" ? is_plain_range
                                  : is_plain_fill;
}

void on_begin(void const* record) {
  Operator* const op = operator_of(record);
  if (op == nullptr) return;
  auto& [calls, kept, storages, recent] = thread();
  bool const in_creation = !calls.empty() && calls.back().makes_result();
  calls.push_back({record, op, KnownBytes::last_write(), 0, kept.size(), storages.size()});
  calls.back().in_creation = in_creation;
  auto const size = part<Size>(record, layout.inputs + sizeof(void*));
  Value const* const inputs = last(part<Value const*>(record, layout.inputs), size, op->arguments);
  if (size < op->arguments) return;
  if ((op->flags & kIgnored) != 0) {
    if (op->arguments != 0 && inputs->tag == kTensor)
      calls.back().first = reinterpret_cast<void const*>(inputs->payload);
    return;
  }
  Call& call = calls.back();
  auto& values = Values::get();
  call.captured = Streams::get().captures();
  auto const outer = std::find_if(calls.rbegin() + 1, calls.rend(), [](Call const& around) {
    return (around.op->flags & kIgnored) == 0 && std::strncmp(around.op->name, "aten::", 6) == 0;
  });
  bool any = false, all = true, small = true;
  for (unsigned index = 0; index < op->arguments; ++index) {
    bool const is_written = (op->written >> index & 1) != 0;
    each_tensor(inputs[index], [&](Tensor const& found) {
      if (call.first == nullptr) call.first = found.address;
      call.wraps |= !found.plain;
      if (!found.on_gpu()) return;
      // What the operator around this one allocated has none of the values from before.
      if (outer != calls.rend() && !outer->wraps && !thread().reads(found.begin, *outer))
        values.forget_followed(found.begin, found.bytes, outer->writes);
      storages.emplace_back(found.begin, found.bytes);
      any = true;
      bool const is_overwritten = is_written && (op->flags & kOverwrites) != 0;
      small &= found.elements <=
               (is_overwritten ? most_elements(type_of(found.address)) : kMostElements);
      if (all && !is_overwritten) all = found.plain && values.follows(found.begin, found.bytes);
      if (all) all = found.plain && !layout.requires_grad(found.address);
    });
  }
  bool const copies = all && !in_creation && op->natively != nullptr && op->natively(inputs, call);
  if (!copies) call.copy_bytes = 0;
  bool always = (op->flags & kAlways) != 0;
  if (any && (op->flags & kCounts) != 0 && call.first != nullptr)
    always |= !is_real(type_of(call.first));
  bool const asks = !copies && (op->flags & kUnwritten) == 0 &&
                    ((any && ((all && small) || always)) || (op->flags & kCreates) != 0);
  if (asks && !in_creation && !call.captured) {
    Unobserved const unobserved;
    call.token = layout.begin(op, inputs);  // calls no operator that is observed
  }
  bool const rest_is_kept = copies && !call.captured;  // a copy says which elements it writes
  bool const anew = call.token == 0 || (always && (op->flags & kOverwrites) != 0);
  if (any && op->written != 0 && anew && !rest_is_kept) {
    for (unsigned index = 0; index < op->arguments; ++index) {
      if ((op->written >> index & 1) == 0) continue;
      each_tensor(inputs[index], [&](Tensor const& found) {
        if (found.on_gpu()) values.forget_followed(found.begin, found.bytes);
      });
    }
  }
}

void follow(Address to, char const* bytes, Size size) {
  Values::get().follow(to, bytes, size);
  auto& [calls, kept, storages, recent] = thread();
  if (!calls.empty()) kept.emplace_back(to, size);
}

// Notes what an operator has written that `natively` understood.
void write(Call const& call) {
  if (call.copy_from != nullptr) {
    follow(call.copy_to, static_cast<char const*>(call.copy_from), call.copy_bytes);
    return;
  }
  std::string bytes(call.copy_bytes, '\0');
  if (call.value != decltype(call.value){})
    for (Size index = 0; index < bytes.size(); ++index)
      bytes[index] = call.value[index % call.value.size()];
  follow(call.copy_to, bytes.data(), bytes.size());
}

// Notes a result of whole numbers with the same distance.
void write_range(Call const& call, Tensor const& to) {
  if (!to.on_gpu() || !to.plain || to.elements > kMostElements || type_of(to.address) != kInt64)
    return;
  std::vector<std::int64_t> numbers(to.elements);
  for (std::int64_t number = call.first_number; auto& one : numbers)
    one = std::exchange(number, number + call.step);
  follow(to.begin, reinterpret_cast<char const*>(numbers.data()), to.elements * sizeof numbers[0]);
}

void on_end(void const* record) {
  auto& [calls, kept, storages, recent] = thread();
  if (calls.empty() || calls.back().record != record) return;
  if ((calls.back().op->flags & kIgnored) != 0) {
    calls.pop_back();
    if (calls.empty()) kept.clear();
    return;
  }
  Call const call = calls.back();
  auto* const begin = part<Value const*>(record, layout.outputs);
  auto* const end = part<Value const*>(record, layout.outputs + sizeof(void*));
  auto const size = static_cast<Size>(end - begin);
  bool failed = size < call.op->results;
  Value const* const outputs = last(begin, size, call.op->results);
  auto& values = Values::get();
  for (Value const* output = outputs; output != end; ++output) {
    each_tensor(*output, [&](Tensor const& found) {
      // That of a traced tensor has no memory.
      failed |= found.begin == 0 && found.elements != 0 && found.address != nullptr;
      if (!found.on_gpu() || thread().reads(found.begin, call)) return;
      values.forget_followed(found.begin, found.bytes, call.writes);
      bool const unwritten = (call.op->flags & kUnwritten) != 0 && calls.size() == 1;
      if (unwritten && !call.captured && found.plain && found.elements <= kMostElements)
        values.follow_fill(found.begin, found.bytes);
    });
  }
  storages.resize(call.inputs);
  calls.pop_back();
  if (call.copy_bytes != 0 && failed) values.forget_followed(call.copy_to, call.copy_bytes);
  if (call.copy_bytes != 0 && !failed && !call.captured) write(call);
  if (call.step != 0 && !failed && !call.captured) write_range(call, tensor(outputs->payload));
  if (call.token != 0) {
    Unobserved const unobserved;
    layout.end(call.op, failed ? nullptr : outputs, call.token);
  }
  if (calls.empty()) kept.clear();
}

}  // namespace

void kernel_in_operator() {
  auto& [calls, kept, storages, recent] = thread();
  if (calls.empty()) return;
  for (std::size_t index = calls.back().kept; index < kept.size(); ++index)
    if (!thread().reads(kept[index].first, calls.back()))
      Values::get().forget_followed(kept[index].first, kept[index].second);
  kept.resize(calls.back().kept);
}

std::uint64_t known_after(Address address) {
  auto const& calls = thread().calls;
  if (calls.empty() || (calls.back().op->flags & kIgnored) != 0) return 0;
  return thread().reads(address, calls.back()) ? 0 : calls.back().writes;
}

bool in_operator() { return !thread().calls.empty(); }

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

// The functions for PyTorch's observer. It keeps what the first one returns, which is nothing.
NULL_GPU_API void** null_operator_begins(void** context, void const* record) {
  *context = nullptr;
  on_begin(record);
  return context;
}

NULL_GPU_API void null_operator_ends(void const* record, void*) { on_end(record); }

NULL_GPU_API void null_layout(Layout const* given) { layout = *given; }

// Sets the function to call after each read of unknown values.
NULL_GPU_API void null_on_read(Values::OnRead call) { Values::get().on_read(call); }

// Copies known values of the device: 1 if all of them are known.
NULL_GPU_GIVES(known, (std::uint64_t from, char* to, std::uint64_t size),
               Values::get().read(from, to, size))

// Notes values of the device that the hook has computed.
NULL_GPU_API void null_follow(std::uint64_t to, char const* bytes, std::uint64_t size) {
  follow(to, bytes, size);
}

// Notes that values of the device are not known any more.
NULL_GPU_API void null_forget(std::uint64_t begin, std::uint64_t size) {
  Values::get().forget(begin, size);
}

// Adds to the references of an object of PyTorch: the program has others meanwhile.
NULL_GPU_API void null_count_reference(std::uint32_t* object, int change) {
  constexpr int kCount = 2;  // after the table of virtual functions
  __atomic_fetch_add(object + kCount, change, __ATOMIC_ACQ_REL);
}

// Writes the names of the operators that this thread runs into `out`, innermost first, each
// followed by a space, cut to `size` bytes. Returns the type of the first tensor of the innermost
// one, as PyTorch counts types; -1: it has none.
NULL_GPU_API int null_operators(char* out, int size) {
  auto const& calls = thread().calls;
  std::string names;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    std::string_view name = call->op->name;
    if (auto const space = name.find("::"); space != name.npos) name.remove_prefix(space + 2);
    names.append(name) += ' ';
  }
  std::strncpy(out, names.c_str(), size - 1);
  out[size - 1] = '\0';
  int type = -1;
  if (!calls.empty() && calls.back().first != nullptr) layout.type(&calls.back().first, &type);
  return type;
}

// How many operators this thread runs.
NULL_GPU_API int null_depth() { return static_cast<int>(thread().calls.size()); }
