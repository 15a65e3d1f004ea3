// pickle_bindings.cpp: what a pickle holds, as Python objects and as columns of tables.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "pickle.hpp"

namespace allocbench {
namespace {

constexpr int kMostNested = 200;

using Numbers = nb::ndarray<nb::numpy, nb::ndim<1>>;  // of any type

// Rows of a table, in place of the dicts of a list or of one dict.
struct Rows {
  std::string table;
  nb::object number;
};

// Makes Python objects of values; equal texts and shared containers become one object.
class Objects {
 public:
  explicit Objects(PickleReader const& reader) : reader_(reader) {
    from_bytes_ = nb::module_::import_("builtins").attr("int").attr("from_bytes");
  }

  nb::object of(Value value, int nested = 0) {
    switch (value.kind()) {
      case Value::kNone: return nb::none();
      case Value::kFlag: return nb::bool_(value.number() != 0);
      case Value::kWhole: return nb::int_(value.number());
      case Value::kLong: return from_bytes_(bytes(value), "little", "signed"_a = true);
      case Value::kDigits: return nb::steal(PyLong_FromString(text(value).c_str(), nullptr, 10));
      case Value::kFloat: {
        double number = 0;
        std::memcpy(&number, reader_.texts()[value.index()].data(), sizeof number);
        return nb::float_(number);
      }
      case Value::kBytes: return bytes(value);
      case Value::kText:
        return once(value, [&] { return decoded(reader_.texts()[value.index()]); });
      case Value::kPair: {
        auto const [first, second] = reader_.pair(value.index());
        return nb::make_tuple(first, second);
      }
      case Value::kStack:
        if (value.index() == 0) return nb::list();
        return once(value, [&] { return rows(0, reader_.stack(value.index())); });
      case Value::kRow: return rows(value.table(), {static_cast<std::uint32_t>(value.row())});
      default: return container(value, nested);
    }
  }

  static nb::object decoded(std::string_view text) {
    PyObject* const found =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass");
    if (!found) {
      PyErr_Clear();
      throw PickleError("is a broken pickle: a text is not UTF-8");
    }
    return nb::steal(found);
  }

 private:
  std::string text(Value value) const { return std::string(reader_.texts()[value.index()]); }

  nb::bytes bytes(Value value) const {
    std::string_view const text = reader_.texts()[value.index()];
    return nb::bytes(text.data(), text.size());
  }

  nb::object rows(std::size_t table, std::vector<std::uint32_t> numbers) const {
    return nb::cast(
        Rows{reader_.tables()[table].form.name, nb::cast(to_numpy(std::move(numbers)))});
  }

  template <class Make>
  nb::object once(Value value, Make make) {
    nb::object& made = known(value);
    if (!made.is_valid()) made = make();
    return made;
  }

  nb::object& known(Value value) {
    std::vector<nb::object>& known = known_[value.kind()];
    if (known.size() <= value.index()) known.resize(value.index() + 1);
    return known[value.index()];
  }

  nb::object container(Value value, int nested) {
    if (nb::object const& found = known(value); found.is_valid()) return found;
    if (nested == kMostNested)
      throw PickleError("holds values that are nested more than " + std::to_string(kMostNested) +
                        " deep");
    std::vector<Value> const& values = reader_.values(value);
    if (value.kind() == Value::kTuple) {
      nb::list items;
      for (Value const item : values) items.append(of(item, nested + 1));
      return known(value) = nb::tuple(items);
    }
    if (value.kind() == Value::kDict) {
      nb::dict made;
      known(value) = made;  // before its items, which may refer to it
      for (std::size_t n = 0; n + 1 < values.size(); n += 2)
        made[of(values[n])] = of(values[n + 1], nested + 1);
      return made;
    }
    if (auto numbers = row_numbers(values))
      return known(value) = rows(values.front().table(), std::move(*numbers));
    nb::list made;
    known(value) = made;
    for (Value const item : values) made.append(of(item, nested + 1));
    return made;
  }

  // The numbers of rows, if the values are rows of one table.
  static std::optional<std::vector<std::uint32_t>> row_numbers(std::vector<Value> const& values) {
    std::vector<std::uint32_t> numbers;
    for (Value const value : values) {
      if (value.kind() != Value::kRow || value.table() != values.front().table())
        return std::nullopt;
      numbers.push_back(static_cast<std::uint32_t>(value.row()));
    }
    if (numbers.empty()) return std::nullopt;
    return numbers;
  }

  PickleReader const& reader_;
  nb::object from_bytes_;
  std::vector<nb::object> known_[16];  // by kind, by index
};

// A pickle after it was read.
struct Pickle {
  std::unique_ptr<PickleReader> reader;
  nb::object data;
};

Pickle read_pickle(std::vector<std::tuple<std::string, std::vector<std::string>, nb::list>> forms,
                   std::uint64_t size, nb::callable read, nb::callable old_text) {
  std::vector<Form> native;
  for (auto& [name, needed, fields] : forms) {
    Form form{std::move(name), std::move(needed), {}};
    for (nb::handle const field : fields)
      form.fields.push_back({nb::cast<std::vector<std::string>>(field.attr("keys")),
                             static_cast<Holds>(nb::cast<int>(field.attr("holds"))),
                             nb::cast<std::int64_t>(field.attr("absent")),
                             nb::cast<std::int64_t>(field.attr("least")),
                             nb::cast<std::int64_t>(field.attr("most")),
                             nb::cast<std::string>(field.attr("of"))});
    native.push_back(std::move(form));
  }
  auto const more = [&](std::string& data, std::size_t most) {
    if (PyErr_CheckSignals()) throw nb::python_error();
    nb::bytes const next = nb::cast<nb::bytes>(read(most));
    data.append(next.c_str(), next.size());
  };
  auto const old = [&](char op, std::string_view line) -> std::optional<std::string> {
    nb::object const text = old_text(nb::bytes(&op, 1), nb::bytes(line.data(), line.size()));
    if (text.is_none()) return std::nullopt;
    nb::bytes const utf8 = nb::cast<nb::bytes>(text);
    return std::string(utf8.c_str(), utf8.size());
  };
  Pickle pickle{std::make_unique<PickleReader>(std::move(native), size, more, old), nb::none()};
  Value const value = pickle.reader->load();
  pickle.data = Objects(*pickle.reader).of(value);
  pickle.reader->forget_values();
  return pickle;
}

}  // namespace

void bind_pickles(nb::module_& m) {
  nb::exception<PickleError>(m, "PickleError", PyExc_ValueError);
  nb::class_<Rows>(m, "Rows", "Rows of a table, in place of the dicts of a list, or of one dict.")
      .def_ro("table", &Rows::table)
      .def_prop_ro(
          "number", [](Rows const& rows) { return rows.number; },
          nb::sig("def number(self) -> numpy.typing.NDArray[numpy.uint32]"));
  nb::class_<Pickle>(m, "Pickle", "What a pickle holds: `data`, and tables of certain dicts.")
      .def_prop_ro(
          "data", [](Pickle const& pickle) { return pickle.data; },
          nb::sig("def data(self) -> typing.Any"))
      .def(
          "column",
          [](nb::handle self, std::string const& table, std::size_t field, bool end) -> Numbers {
            for (Table const& found : nb::cast<Pickle&>(self).reader->tables()) {
              if (found.form.name != table) continue;
              Column const& column = found.columns.at(field);
              if (!column.wide.empty())
                return Numbers(nb::ndarray<nb::numpy, std::int64_t const, nb::ndim<1>>(
                    column.wide.data(), {column.wide.size()}, self));
              auto const& values = end ? column.end : column.narrow;
              return Numbers(nb::ndarray<nb::numpy, std::uint32_t const, nb::ndim<1>>(
                  values.data(), {values.size()}, self));
            }
            throw nb::key_error(table.c_str());
          },
          "table"_a, "field"_a, "end"_a = false, nb::rv_policy::reference,
          nb::sig("def column(self, table: str, field: int, end: bool = False) -> "
                  "numpy.typing.NDArray[typing.Any]"),
          "A column of a table, by the number of its field. end: of rows, the one after the last.")
      .def(
          "text",
          [](Pickle const& pickle, std::size_t number) {
            return Objects::decoded(pickle.reader->texts()[number]);
          },
          "number"_a, nb::sig("def text(self, number: int) -> str"))
      .def(
          "pair",
          [](Pickle const& pickle, std::size_t number) {
            auto const [first, second] = pickle.reader->pair(number);
            return std::tuple(first, second);
          },
          "number"_a)
      .def(
          "stack",
          [](Pickle const& pickle, std::size_t number) { return pickle.reader->stack(number); },
          "number"_a, "The rows of the frames of a call stack, innermost first.");
  m.def("read_pickle", &read_pickle, "forms"_a, "size"_a, "read"_a, "old_text"_a,
        nb::sig("def read_pickle(forms: list[tuple[str, list[str], list[typing.Any]]], size: int, "
                "read: collections.abc.Callable[[int], bytes], old_text: "
                "collections.abc.Callable[[bytes, bytes], bytes | None]) -> Pickle"),
        "Reads a pickle. forms: the name of each table, the keys that a dict needs to be a row, "
        "and its fields; the first table has frames. size: bytes of the file. read: the next "
        "bytes, at most as many as given. old_text: UTF-8 of the line of an opcode S or V, None "
        "for a broken one. Raises PickleError.");
}

}  // namespace allocbench
