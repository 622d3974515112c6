#include <algorithm>

#include "base/file.h"
#include "config/config.h"
#include "config/visitors.h"

namespace trireme {
namespace {

YAML::Node Load(std::string_view yaml, std::string_view name) {
  try {
    return YAML::Load(std::string(yaml));
  } catch (const YAML::ParserException& e) {
    FailUser("{}:{}:{}: not YAML: {}", name, e.mark.line + 1, e.mark.column + 1, e.msg);
  } catch (const YAML::Exception& e) {
    FailUser("{}: not YAML: {}", name, e.what());
  }
}

}  // namespace

Config ParseConfig(std::string_view yaml, std::string_view name) {
  Config config;
  Reader(Load(yaml, name), std::string(name), "").ReadInto(config);
  return config;
}

Config LoadConfig(const std::filesystem::path& path) { return ParseConfig(ReadFile(path), path.string()); }

void SetField(Config& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    FailUser("--set {}: expected path=value, such as parallel.tp=2", assignment);
  const std::string path(assignment.substr(0, equals));
  PathLister known;
  config.VisitFields(known);
  if (std::ranges::find(known.paths_, path) == known.paths_.end()) {
    const std::vector<std::string> near = NearestNames(path, known.paths_);
    FailUser("--set {}: unknown field {}{}", assignment, path, near.empty() ? "" : Suggest(path, known.paths_));
  }
  // One field as a tree of its own: the same reading, the same messages.
  YAML::Node tree = Load(assignment.substr(equals + 1), "--set " + path);
  for (size_t end = path.size(); end != std::string::npos;) {
    const size_t dot = end == 0 ? std::string::npos : path.rfind('.', end - 1);
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    YAML::Node outer;
    outer[path.substr(begin, end - begin)] = tree;
    tree = outer;
    end = dot;
  }
  Reader(tree, "--set " + std::string(assignment), "").ReadInto(config);
}

std::string PrintConfig(const Config& config) {
  Config copy = config;  // visitors see mutable fields
  Printer printer;
  copy.VisitFields(printer);
  return printer.text_;
}

}  // namespace trireme
