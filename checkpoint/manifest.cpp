#include "checkpoint/manifest.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "checkpoint/content_hash.h"
#include "checkpoint/file.h"
#include "checkpoint/format.h"
#include "tensor/json_depth.h"

namespace checkpoint {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "trainer checkpoint";
constexpr int kVersion = 1;
constexpr int kMaxDepth = 8;

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  throw DamagedError(fmt::format("{}: this checkpoint is damaged, or none: {}.", path, why));
}

uint64_t hash_file(const InputFile& file) {
  std::vector<std::byte> bytes(static_cast<size_t>(file.bytes()));
  file.read_at(0, bytes.data(), file.bytes());
  return hash_bytes(bytes.data(), file.bytes());
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

/// The text whose hash the manifest carries: all but that.
uint64_t self_hash(Json json) {
  json.erase("xxh3_64");
  const std::string text = json.dump();
  return hash_bytes(text.data(), std::ssize(text));
}

Json read_json(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) damaged(path, "it is missing");
  const InputFile file(path);
  if (file.bytes() > static_cast<int64_t>(format::kMaxTableBytes)) damaged(path, "it is too long");
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read_at(0, text.data(), file.bytes());
  // ours is three deep; what hashes it walks down by recursion
  if (tensor::json_depth(text) > kMaxDepth) damaged(path, "its parts lie too deep");
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) damaged(path, "it is no JSON object");
  return json;
}

void require_size(const std::string& path, int64_t bytes) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) damaged(path, "it is missing");
  if (!S_ISREG(status.st_mode)) damaged(path, "it is no regular file");
  if (status.st_size != bytes) {
    damaged(path, fmt::format("it has {} bytes, and was written with {}", status.st_size, bytes));
  }
}

int64_t number(const Json& json, const std::string& path) {
  if (!json.is_number_integer() || json < 0 || json > format::kMaxFileBytes) damaged(path, "a number is impossible");
  return json.get<int64_t>();
}

Manifest parse(const Json& json, const std::string& path) {
  try {
    if (json.at("format") != kFormat) damaged(path, "its format is another one");
    if (json.at("xxh3_64").get<std::string>() != hex(self_hash(json))) damaged(path, "its text was changed");
    if (json.at("version") != kVersion) {
      throw tensor::CheckpointError(
          fmt::format("{}: this checkpoint has format version {}; this program reads version {}.\n  Fix: use the "
                      "program that wrote "
                      "it.",
                      path, json.at("version").dump(), kVersion));
    }
    Manifest manifest{.step = number(json.at("step"), path),
                      .index_bytes = number(json.at("index").at("bytes"), path),
                      .index_hash = std::stoull(json.at("index").at("xxh3_64").get<std::string>(), nullptr, 16),
                      .files = {}};
    for (const Json& file : json.at("files"))
      manifest.files.push_back({file.at("path"), number(file.at("bytes"), path)});
    return manifest;
  } catch (const Json::exception& error) {
    damaged(path, "an entry is missing or has another form");
  } catch (const std::logic_error& error) {  // of stoull
    damaged(path, "a hash is no number");
  }
}

}  // namespace

void write_manifest(const std::string& folder, const Index& index) {
  const InputFile index_file(folder + "/" + kIndexFile);
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"step", index.info.progress.step},
               {"index", {{"bytes", index_file.bytes()}, {"xxh3_64", hex(hash_file(index_file))}}},
               {"files", Json::array()}};
  for (const ShardFile& file : index.files) json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}});
  json["xxh3_64"] = hex(self_hash(json));
  const std::string text = json.dump(1) + "\n";
  TemporaryFile file(folder + "/" + kManifestFile);
  file.write_at(0, text.data(), std::ssize(text));
  file.publish();
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestFile;
  Manifest manifest = parse(read_json(path), path);
  for (const ShardFile& file : manifest.files) {
    if (!stays_inside(file.path)) damaged(path, "a path leads elsewhere");
    require_size(folder + "/" + file.path, file.bytes);
  }
  const std::string index_path = folder + "/" + kIndexFile;
  require_size(index_path, manifest.index_bytes);
  if (hash_file(InputFile(index_path)) != manifest.index_hash) damaged(index_path, "it was changed");
  return manifest;
}

}  // namespace checkpoint
