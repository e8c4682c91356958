#include <fmt/format.h>

#include "trainer/config_keys.h"
#include "trainer/config_reader.h"

namespace trainer {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// The shortest text that reads back to the same double, and that is a float to TOML.
std::string number(double x) {
  std::string text = fmt::format("{}", x);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class TomlWriter : public KeyVisitor {
 public:
  void begin_table(const char* name) override {
    path_.push_back(path_.empty() ? name : path_.back() + "." + name);
    text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", path_.back());
  }
  void end_table() override { path_.pop_back(); }

  void boolean(const Key& key, bool& field) override { write(key, field ? "true" : "false"); }
  void integer(const Key& key, int64_t& field, const IntegerRange& range) override {
    const bool is_word = field == 0 && range.word_for_zero != nullptr;
    write(key, is_word ? quoted(range.word_for_zero) : std::to_string(field));
  }
  void real(const Key& key, double& field, const RealRange&) override { write(key, number(field)); }
  void text(const Key& key, std::string& field) override { write(key, quoted(field)); }
  void name_of(const Key& key, size_t& index, const std::vector<std::string>& names) override {
    write(key, quoted(names.at(index)));
  }
  void sources(const Key& key, std::vector<data::DataSource>& field) override {
    std::string list;
    for (const data::DataSource& source : field) {
      const bool has_weight = source.weight != 0;
      list += list.empty() ? "" : ", ";
      list += has_weight ? fmt::format("{{path = {}, weight = {}}}", quoted(source.path), number(source.weight))
                         : quoted(source.path);
    }
    write(key, "[" + list + "]");
  }
  void integers(const Key& key, std::vector<int64_t>& field, const IntegerRange&) override {
    write(key, fmt::format("[{}]", fmt::join(field, ", ")));
  }
  void paths(const Key& key, std::vector<std::string>& field) override {
    std::string list;
    for (const std::string& path : field) list += (list.empty() ? "" : ", ") + quoted(path);
    write(key, "[" + list + "]");
  }
  void preset(const Key&, model::ModelConfig&) override {}  // its keys follow, resolved

  const std::string& result() const { return text_; }

 private:
  void write(const Key& key, const std::string& value) {
    text_ += fmt::format("{} = {}  # {}\n", key.name, value, key.meaning);
  }

  std::vector<std::string> path_;
  std::string text_;
};

}  // namespace

std::string to_toml(const Config& config) {
  TomlWriter writer;
  Config copy = config;  // visiting takes fields that may be written
  visit_keys(writer, copy);
  return writer.result();
}

}  // namespace trainer
