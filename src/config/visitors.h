#pragma once
// What walks the typed tree: reading YAML into it, listing its paths, printing it. Private to config/.

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "config/nearest.h"

namespace trireme {

// The names of a section's fields and subsections.
class NameLister {
 public:
  template <class T>
  void Field(const char* name, T&, const char*) {
    names_.emplace_back(name);
  }
  template <class T>
  void Section(const char* name, T&, const char*) {
    names_.emplace_back(name);
  }
  std::vector<std::string> names_;
};

// The full paths of all fields.
class PathLister {
 public:
  template <class T>
  void Field(const char* name, T&, const char*) {
    paths_.push_back(prefix_ + name);
  }
  template <class T>
  void Section(const char* name, T& section, const char*) {
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    section.VisitFields(*this);
    prefix_ = outer;
  }
  std::vector<std::string> paths_;

 private:
  std::string prefix_;
};

template <class T>
constexpr const char* TypeName() {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_integral_v<T>)
    return std::is_unsigned_v<T> ? "a whole number of at least 0" : "a whole number";
  else if constexpr (std::is_floating_point_v<T>)
    return "a number";
  else if constexpr (std::is_same_v<T, std::string>)
    return "a text";
  else
    return "a list";
}

// Reads one mapping node into one struct.
class Reader {
 public:
  Reader(const YAML::Node& node, std::string file, std::string path)
      : node_(node), file_(std::move(file)), path_(std::move(path)) {}

  // Reads every field that the node gives; throws UserError at the first name that no field took.
  template <class T>
  void ReadInto(T& section) {
    if (node_.IsNull() || !node_.IsDefined()) return;
    if (!node_.IsMap())
      FailUser("{}: {}: expected a mapping of fields", Where(node_), path_.empty() ? "the file" : path_);
    NameLister names;
    section.VisitFields(names);
    std::vector<std::string> seen;
    for (const auto& entry : node_) {
      if (!entry.first.IsScalar()) FailUser("{}: expected the name of a field", Where(entry.first));
      const std::string& name = entry.first.Scalar();
      if (std::find(names.names_.begin(), names.names_.end(), name) == names.names_.end()) {
        FailUser("{}: unknown field {}{}", Where(entry.first), Path(name), Suggest(name, names.names_));
      }
      if (std::find(seen.begin(), seen.end(), name) != seen.end())
        FailUser("{}: {} is given twice", Where(entry.first), Path(name));
      seen.push_back(name);
    }
    section.VisitFields(*this);
  }

  template <class T>
  void Field(const char* name, T& value, const char*) {
    if (const YAML::Node child = node_[name]; child.IsDefined()) Convert(child, Path(name), value);
  }
  template <class T>
  void Section(const char* name, T& section, const char*) {
    if (const YAML::Node child = node_[name]; child.IsDefined()) Reader(child, file_, Path(name)).ReadInto(section);
  }

 private:
  std::string Path(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }
  std::string Where(const YAML::Node& node) const {
    const YAML::Mark mark = node.Mark();
    return mark.is_null() ? file_ : fmt::format("{}:{}:{}", file_, mark.line + 1, mark.column + 1);
  }

  template <class T>
  void Convert(const YAML::Node& node, const std::string& path, std::vector<T>& list) {
    if (!node.IsSequence()) FailUser("{}: {}: expected a list [..], got {}", Where(node), path, Shown(node));
    list.clear();
    for (const auto& item : node) {
      const size_t index = list.size();
      Convert(item, fmt::format("{}[{}]", path, index), list.emplace_back());
    }
  }
  template <class T>
  void Convert(const YAML::Node& node, const std::string& path, T& value) {
    const bool quoted = node.Tag() == "!";
    bool good = node.IsScalar() && (std::is_same_v<T, std::string> || !quoted);
    if (good) good = Parse(node.Scalar(), value);
    if (!good) FailUser("{}: {}: expected {}, got {}", Where(node), path, TypeName<T>(), Shown(node));
  }

  static bool Parse(const std::string& text, std::string& value) {
    value = text;
    return true;
  }
  static bool Parse(const std::string& text, bool& value) {
    value = text == "true";
    return text == "true" || text == "false";
  }
  template <class T>
  static bool Parse(const std::string& text, T& value) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return false;
    }
    return error == std::errc() && at == end;
  }
  static std::string Shown(const YAML::Node& node) {
    if (node.IsScalar()) return "'" + node.Scalar() + "'";
    return node.IsSequence() ? "a list" : node.IsMap() ? "a mapping" : "nothing";
  }

  YAML::Node node_;
  std::string file_, path_;
};

// YAML text, every field with its reason as a comment.
class Printer {
 public:
  template <class T>
  void Field(const char* name, T& value, const char* why) {
    Line(fmt::format("{}{}: {}", indent_, name, Text(value)), why);
  }
  template <class T>
  void Section(const char* name, T& section, const char* why) {
    Line(fmt::format("{}{}:", indent_, name), why);
    indent_ += "  ";
    section.VisitFields(*this);
    indent_.resize(indent_.size() - 2);
  }
  std::string text_;

 private:
  void Line(const std::string& setting, const char* why) { text_ += fmt::format("{:<44} # {}\n", setting, why); }
  static std::string Text(bool value) { return value ? "true" : "false"; }
  static std::string Text(double value) { return fmt::format("{}", value); }  // the shortest text that reads back equal
  // Always quoted: `no`, `1e3` and `a: b` stay texts.
  static std::string Text(const std::string& value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      if (static_cast<unsigned char>(c) < 0x20) {
        text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        text += c;
      }
    }
    return text + '"';
  }
  template <class T>
  requires std::is_integral_v<T>
  static std::string Text(T value) { return fmt::format("{}", value); }
  template <class T>
  static std::string Text(const std::vector<T>& list) {
    std::string text = "[";
    for (const T& item : list) text += (text.size() > 1 ? ", " : "") + Text(item);
    return text + "]";
  }

  std::string indent_;
};

}  // namespace trireme
