#pragma once
// JSON files as input that nobody trusts: what is missing or of the wrong type is a UserError that names file and
// field.

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <string_view>

#include "sharding/param_spec.h"

namespace trireme {

// `where` stands in messages: the file, or file and field.
nlohmann::json ParseJsonObject(std::string_view text, const std::string& where);
nlohmann::json ReadJsonObject(const std::filesystem::path& path);

const nlohmann::json& Member(const nlohmann::json& object, const char* key, const std::string& where);
const nlohmann::json& ObjectMember(const nlohmann::json& object, const char* key, const std::string& where);
const std::string& TextMember(const nlohmann::json& object, const char* key, const std::string& where);
int64_t CountMember(const nlohmann::json& object, const char* key, const std::string& where);  // an integer, 0 or more
Shape ShapeMember(const nlohmann::json& object, const char* key, const std::string& where);    // integers, 0 or more

// The value as it stands in messages: its JSON, shortened.
std::string ValueText(const nlohmann::json& value);

// Refuses a name that would leave the folder it is looked up in.
void CheckPlainFileName(const std::string& name, const std::string& where);

}  // namespace trireme
