#pragma once
// What a failure is, and which exit code it means. Messages say who, where, expected, got, and what to do.

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

// The run failed: exit code 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user's input is wrong (configuration, command line, file): exit code 2. The message names the field or
// file:line:column, the value, the rule, and what would be valid.
class UserError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void FailUser(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme

// A broken promise inside the program (never wrong user input): throws Error with the condition and place.
#define TRIREME_CHECK(condition, ...)                                                                      \
  do {                                                                                                     \
    if (!(condition)) [[unlikely]] {                                                                       \
      ::trireme::Fail("{}:{}: expected {}: {}", __FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
    }                                                                                                      \
  } while (false)
