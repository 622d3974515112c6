#include "checkpoint/json_input.h"

#include <limits>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace trireme {
namespace {

bool IsCount(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
}

}  // namespace

nlohmann::json ParseJsonObject(std::string_view text, const std::string& where) {
  // The parser keeps the last of two equal keys: two readers could then see two different files.
  std::set<std::string> keys;
  std::string twice;
  const auto see = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key && !keys.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text.begin(), text.end(), see);
  } catch (const nlohmann::json::exception& error) {
    FailUser("{}: not valid JSON: {}", where, error.what());
  }
  if (!json.is_object()) FailUser("{}: expected a JSON object, got {}", where, json.type_name());
  if (!twice.empty()) FailUser("{}: key '{}' stands twice", where, twice);
  return json;
}

nlohmann::json ReadJsonObject(const std::filesystem::path& path) {
  return ParseJsonObject(ReadFile(path), path.string());
}

const nlohmann::json& Member(const nlohmann::json& object, const char* key, const std::string& where) {
  if (!object.is_object()) FailUser("{}: expected an object with field '{}', got {}", where, key, ValueText(object));
  const auto it = object.find(key);
  if (it == object.end()) FailUser("{}: field '{}' is missing", where, key);
  return *it;
}

const nlohmann::json& ObjectMember(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = Member(object, key, where);
  if (!value.is_object()) FailUser("{}: field '{}': expected an object, got {}", where, key, ValueText(value));
  return value;
}

const std::string& TextMember(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = Member(object, key, where);
  if (!value.is_string()) FailUser("{}: field '{}': expected a text, got {}", where, key, ValueText(value));
  return value.get_ref<const std::string&>();
}

int64_t CountMember(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = Member(object, key, where);
  if (!IsCount(value)) {
    FailUser("{}: field '{}': expected an integer of 0 or more, got {}", where, key, ValueText(value));
  }
  return value.get<int64_t>();
}

Shape ShapeMember(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = Member(object, key, where);
  Shape shape;
  bool fine = value.is_array();
  if (fine) {
    for (const nlohmann::json& item : value) {
      if (!IsCount(item)) {
        fine = false;
        break;
      }
      shape.push_back(item.get<int64_t>());
    }
  }
  if (!fine) FailUser("{}: field '{}': expected integers of 0 or more, got {}", where, key, ValueText(value));
  return shape;
}

std::string ValueText(const nlohmann::json& value) {
  // Containers may be deep, and printing them recurses.
  if (value.is_structured()) return fmt::format("{} of {} items", value.type_name(), value.size());
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

void CheckPlainFileName(const std::string& name, const std::string& where) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    FailUser("{}: '{}': expected the name of a file in the same folder", where, name);
  }
}

}  // namespace trireme
